//! Signals, which work can set, reset and wait for any number of times.

use std::collections::BTreeMap;

use crate::lane::Times;

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u64);

/// All signals. Those that are set have the times of the operation that set them last.
#[derive(Debug, Default)]
pub struct Signals {
    live: BTreeMap<Signal, Option<Times>>,
    last: u64,
}

impl Signals {
    /// Creates a signal that is not set.
    pub fn make(&mut self) -> Signal {
        self.last += 1;
        self.live.insert(Signal(self.last), None);
        Signal(self.last)
    }

    /// Removes a signal. Anything that still waits for it waits forever.
    pub fn remove(&mut self, signal: Signal) {
        self.live.remove(&signal);
    }

    /// Sets a signal.
    pub fn set(&mut self, signal: Signal, times: Times) {
        if let Some(state) = self.live.get_mut(&signal) {
            *state = Some(times);
        }
    }

    /// Resets a signal.
    pub fn reset(&mut self, signal: Signal) {
        if let Some(state) = self.live.get_mut(&signal) {
            *state = None;
        }
    }

    /// Whether a signal is set.
    pub fn is_set(&self, signal: Signal) -> bool {
        self.times(signal).is_some()
    }

    /// Returns the times of the operation that set it, or `None` if it is not set.
    pub fn times(&self, signal: Signal) -> Option<Times> {
        self.live.get(&signal).copied().flatten()
    }
}
