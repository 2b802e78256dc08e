//! Random numbers that are the same on every run.

/// A xorshift generator with a fixed seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Returns a size in bytes, at least 1, spread evenly over the powers of two below `bound`.
    pub(super) fn size(&mut self, bound: u64) -> u64 {
        let bits = self.below(u64::from(bound.ilog2())) + 1;
        1 + self.below(1 << bits)
    }
}
