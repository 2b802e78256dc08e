//! Numbers of streams: recorded streams, and auxiliary ones for uses whose stream is not in the history.

use std::collections::HashMap;

/// The recorded streams in the order of their first appearance, followed by the auxiliary ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    numbers: HashMap<u64, u32>,
    auxiliary: u32,
    idle: Vec<u32>,
}

impl Streams {
    /// Adds a recorded stream. The default stream is always 0.
    pub(super) fn note(&mut self, stream: u64) {
        let next = self.recorded() + 1;
        if stream != 0 {
            self.numbers.entry(stream).or_insert(next);
        }
    }

    /// Returns the number of a stream that was added.
    pub(super) fn of(&self, stream: u64) -> u32 {
        self.numbers.get(&stream).copied().unwrap_or(0)
    }

    /// Returns an auxiliary stream that is not in use.
    pub(super) fn take_auxiliary(&mut self) -> u32 {
        self.idle.pop().unwrap_or_else(|| {
            self.auxiliary += 1;
            self.recorded() + self.auxiliary
        })
    }

    /// Takes back an auxiliary stream once it is released.
    pub(super) fn put_back(&mut self, auxiliary: u32) {
        self.idle.push(auxiliary);
    }

    /// Returns the number of recorded streams, without the default one.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn recorded(&self) -> u32 {
        u32::try_from(self.numbers.len()).unwrap_or(u32::MAX)
    }
}
