//! Failures that a test requests, and the call counts that trigger them.

use std::collections::HashMap;

/// A failure that waits for its call.
#[derive(Clone, Debug)]
pub struct Planned<C> {
    /// The call's name; `None` matches any call.
    pub name: Option<String>,
    /// Fails the nth call from now: 1 is the next call.
    pub nth: u64,
    /// Whether all later calls fail, too.
    pub lasts: bool,
    /// The code that the call returns.
    pub code: C,
}

/// Planned failures and call counts.
#[derive(Debug)]
pub struct Faults<C> {
    planned: Vec<Planned<C>>,
    total: u64,
    counts: HashMap<&'static str, u64>,
}

impl<C> Default for Faults<C> {
    fn default() -> Self {
        Self { planned: Vec::new(), total: 0, counts: HashMap::new() }
    }
}

impl<C: Copy> Faults<C> {
    /// Adds a failure.
    pub fn plan(&mut self, planned: Planned<C>) {
        self.planned.push(planned);
    }

    /// Drops all planned failures and returns how many there were.
    pub fn clear(&mut self) -> usize {
        std::mem::take(&mut self.planned).len()
    }

    /// Returns the number of calls so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of calls with a name.
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Counts a call. Returns a code if the call is planned to fail. A failure that lasts stays planned.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<(), C> {
        self.total += 1;
        *self.counts.entry(name).or_default() += 1;
        let mut due = None;
        self.planned.retain_mut(|planned| {
            if planned.name.as_deref().is_some_and(|wanted| wanted != name) {
                return true;
            }
            if planned.nth > 1 {
                planned.nth -= 1;
                return true;
            }
            due = due.or(Some(planned.code));
            planned.lasts
        });
        due.map_or(Ok(()), Err)
    }
}
