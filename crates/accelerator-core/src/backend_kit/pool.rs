//! Objects that are reused.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::lock;
use crate::types::DriverResult;

/// Objects of a driver that take long to make, kept for reuse: events, queries, host memory through which pageable
/// copies go.
///
/// An object comes back when its [`Pooled`] is dropped. So keep that until the work that uses the object has ended, for
/// instance with the submission in [`Submissions`](crate::backend_kit::Submissions).
///
/// ```
/// use accelerator_core::backend_kit::Pool;
///
/// # fn main() -> accelerator_core::DriverResult<()> {
/// let staging = Pool::new(8); // at most 8 that nobody uses
/// let make = || Ok(vec![0; 1 << 20]);
/// let mut first = staging.take(make)?;
/// first[0] = 7;
/// let second = staging.take(make)?;
/// assert_eq!(staging.in_use(), 2);
/// drop(first); // the work that used it has ended
/// assert_eq!(staging.take(make)?[0], 7, "the first one again");
/// # drop(second);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pool<T> {
    unused: Mutex<Vec<T>>,
    /// The maximum number of unused objects.
    kept: usize,
    in_use: AtomicUsize,
}

/// An object of a [`Pool`], which gets it back on drop.
#[derive(Debug)]
pub struct Pooled<T> {
    /// Not `None` before the drop.
    object: Option<T>,
    pool: Arc<Pool<T>>,
}

impl<T> Pool<T> {
    /// Makes an empty pool. Of the objects that nobody uses, it keeps at most `kept` and drops the others.
    pub fn new(kept: usize) -> Arc<Self> {
        Arc::new(Self { unused: Mutex::default(), kept, in_use: AtomicUsize::new(0) })
    }

    /// Returns the object that came back last, or else makes one. No lock is held meanwhile.
    ///
    /// # Errors
    /// Errors of `make`.
    pub fn take(self: &Arc<Self>, make: impl FnOnce() -> DriverResult<T>) -> DriverResult<Pooled<T>> {
        let unused = lock(&self.unused).pop();
        let object = unused.map_or_else(make, Ok)?;
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Ok(Pooled { object: Some(object), pool: Arc::clone(self) })
    }

    /// Adds an object that nobody uses, for drivers that make several at once.
    pub fn add(&self, object: T) {
        let mut unused = lock(&self.unused);
        if unused.len() < self.kept {
            unused.push(object);
        } else {
            drop(unused); // dropping the object may call the driver
            drop(object);
        }
    }

    /// Returns the number of objects in use, to wait for work before so many are made that memory is short.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Removes all objects that nobody uses, to free their memory.
    pub fn drain(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.unused))
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object.as_ref().unwrap_or_else(|| unreachable!("only dropping takes it"))
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object.as_mut().unwrap_or_else(|| unreachable!("only dropping takes it"))
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        self.pool.in_use.fetch_sub(1, Ordering::Relaxed);
        if let Some(object) = self.object.take() {
            self.pool.add(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DriverError, DriverErrorKind};

    #[test]
    fn objects_come_back_and_only_so_many_are_kept() {
        let pool = Pool::new(2);
        let weak: Vec<_> = {
            let taken: Vec<_> = (0..4).map(|number| pool.take(|| Ok(Arc::new(number))).unwrap()).collect();
            assert_eq!((pool.in_use(), lock(&pool.unused).len()), (4, 0));
            taken.iter().map(|object| Arc::downgrade(object)).collect()
        };
        assert_eq!(pool.in_use(), 0);
        assert_eq!(weak.iter().map(|weak| weak.strong_count()).collect::<Vec<_>>(), [1, 1, 0, 0]);
        let again = pool.take(|| Ok(Arc::new(9))).unwrap();
        assert_eq!((**again, pool.in_use()), (1, 1));
        assert_eq!(pool.drain(), [Arc::new(0)]);
        drop(again);
        assert_eq!(pool.drain(), [Arc::new(1)], "in use before, so it was not removed");
    }

    #[test]
    fn several_objects_are_made_at_once() {
        let pool = Pool::new(usize::MAX);
        let make = || {
            (1..4).for_each(|number| pool.add(number));
            Ok(4)
        };
        let taken = [(); 4].map(|()| pool.take(make).unwrap());
        assert_eq!(taken.each_ref().map(|object| **object), [4, 3, 2, 1]);
        drop(taken);
        assert_eq!(pool.drain().len(), 4);
    }

    #[test]
    fn what_cannot_be_made_is_not_in_use() {
        let error = DriverError::new(DriverErrorKind::OutOfMemory, "alloc", 2, "full");
        let pool = Pool::<u8>::new(1);
        assert_eq!(pool.take(|| Err(error)).map(|object| *object), Err(error));
        assert_eq!((pool.in_use(), pool.drain().len()), (0, 0));
    }
}
