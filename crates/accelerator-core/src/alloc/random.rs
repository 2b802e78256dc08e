//! Random numbers for tests, the same on every run.

/// A xorshift generator.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number under `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 11) % bound
    }

    /// Whether this is the one of so many cases.
    pub(super) fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    /// The place of one of so many things.
    pub(super) fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.index(last + 1));
        }
    }
}
