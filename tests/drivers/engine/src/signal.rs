//! Signals: what work sets, resets and waits for, any number of times.

use std::collections::BTreeMap;

use crate::lane::Times;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u64);

/// All signals: those that are set, with the times of what set them last.
#[derive(Debug, Default)]
pub struct Signals {
    live: BTreeMap<Signal, Option<Times>>,
    last: u64,
}

impl Signals {
    /// Makes one that is not set.
    pub fn make(&mut self) -> Signal {
        self.last += 1;
        self.live.insert(Signal(self.last), None);
        Signal(self.last)
    }

    /// Takes one away. Who still waits for it waits in vain.
    pub fn remove(&mut self, signal: Signal) {
        self.live.remove(&signal);
    }

    /// Sets one.
    pub fn set(&mut self, signal: Signal, times: Times) {
        if let Some(state) = self.live.get_mut(&signal) {
            *state = Some(times);
        }
    }

    /// Ends that.
    pub fn reset(&mut self, signal: Signal) {
        if let Some(state) = self.live.get_mut(&signal) {
            *state = None;
        }
    }

    /// Whether one is set.
    pub fn is_set(&self, signal: Signal) -> bool {
        self.times(signal).is_some()
    }

    /// The times of the operation that set it; `None`: it is not set.
    pub fn times(&self, signal: Signal) -> Option<Times> {
        self.live.get(&signal).copied().flatten()
    }
}
