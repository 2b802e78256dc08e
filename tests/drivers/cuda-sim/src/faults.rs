//! Failures that a test asks for, and the counts of calls that they go by.

use std::collections::HashMap;

use crate::code::Code;

/// A failure that waits for its call.
pub(crate) struct Planned {
    /// `None`: whatever call.
    pub(crate) name: Option<String>,
    /// The nth call from now, 1 for the next; 0 for every one.
    pub(crate) nth: u64,
    pub(crate) code: Code,
}

#[derive(Default)]
pub(crate) struct Faults {
    planned: Vec<Planned>,
    total: u64,
    counts: HashMap<&'static str, u64>,
}

impl Faults {
    pub(crate) fn plan(&mut self, planned: Planned) {
        self.planned.push(planned);
    }

    pub(crate) fn clear(&mut self) {
        self.planned.clear();
    }

    /// How many planned failures have yet to happen; one for every call stays.
    pub(crate) fn pending(&self) -> usize {
        self.planned.len()
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Counts a call; the code that it is to fail with, if so planned.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<(), Code> {
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
