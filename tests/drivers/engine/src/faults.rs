//! Failures that a test asks for, and the counts of calls that they go by.

use std::collections::HashMap;

/// A failure that waits for its call.
#[derive(Clone, Debug)]
pub struct Planned<C> {
    /// `None`: whatever call.
    pub name: Option<String>,
    /// The nth call from now, 1 for the next; 0 for every one.
    pub nth: u64,
    /// What the call gives.
    pub code: C,
}

/// Failures and counts.
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

    /// Forgets all failures that are still planned; how many there were.
    pub fn clear(&mut self) -> usize {
        std::mem::take(&mut self.planned).len()
    }

    /// How many calls there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many of them of a name.
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Counts a call; the code that it is to fail with, if so planned. A failure for every call stays
    /// planned.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<(), C> {
        self.total += 1;
        *self.counts.entry(name).or_default() += 1;
        let mut due = None;
        self.planned.retain_mut(|planned| {
            if planned.name.as_deref().is_some_and(|wanted| wanted != name) {
                return true;
            }
            let every = planned.nth == 0;
            planned.nth = planned.nth.saturating_sub(1);
            if planned.nth > 0 {
                return true;
            }
            due = due.or(Some(planned.code));
            every
        });
        due.map_or(Ok(()), Err)
    }
}
