//! Reads choices from the bytes of an input. Past its end, each choice is the first one.

use accelerator_core::MIB;

pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below `count`, or 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Returns a number of bytes to request: small, near a limit of the allocator, large, or impossible.
    pub(super) fn size(&mut self) -> u64 {
        const EDGES: [u64; 8] = [512, 1024, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB];
        let kind = self.byte();
        let amount = u64::from(self.byte());
        match kind % 8 {
            0 => 1 + amount * 16,
            1 => self.one_of(&EDGES) - 1 + amount % 3,
            2 => (1 + amount) * 4096,
            3 => (1 + amount % 64) * 100_000,
            4 => (1 + amount % 16) * MIB,
            5 => 10 * MIB + amount * 3 * 512,
            6 => (1 + amount) * 2 * MIB,
            _ => self.one_of(&[1, (1 << 60) - 1, 1 << 60, u64::MAX, 300 * MIB + 512]),
        }
    }
}
