//! Values that there is one of for each key, as long as somebody uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(crate) struct InUse<K, T: ?Sized>(BTreeMap<K, Weak<T>>);

impl<K, T: ?Sized> Default for InUse<K, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, T: ?Sized> InUse<K, T> {
    /// Returns the value with this key, if it is in use.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<T>> {
        self.0.get(key).and_then(Weak::upgrade)
    }

    pub(crate) fn insert(&mut self, key: K, value: &Arc<T>) {
        self.0.insert(key, Arc::downgrade(value));
    }

    #[cfg(target_os = "linux")] // for connections
    pub(crate) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Returns the value with this key if it is in use, and otherwise makes it.
    pub(crate) fn get_or_make<E>(&mut self, key: K, make: impl FnOnce() -> Result<Arc<T>, E>) -> Result<Arc<T>, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let made = make()?;
        self.insert(key, &made);
        Ok(made)
    }

    /// Forgets the keys of values that nobody uses any more.
    pub(crate) fn forget_unused(&mut self) {
        self.0.retain(|_, value| value.strong_count() > 0);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_forgotten_that_nobody_uses_or_that_are_removed() {
        let mut values = InUse::default();
        let [one, other] = [1, 2].map(|key| values.get_or_make(key, || Ok::<_, ()>(Arc::new(key))).unwrap());
        drop(one);
        assert_eq!((values.get(&1), values.get(&2)), (None, Some(Arc::clone(&other))));
        values.forget_unused();
        assert_eq!(values.0.len(), 1);
        #[cfg(target_os = "linux")]
        {
            values.remove(&2);
            assert_eq!(values.get(&2), None);
        }
    }
}
