//! Pseudo-random numbers and sizes, the same in every run and the same as in the program that measures PyTorch's
//! allocator.

use std::num::NonZeroU64;

/// xorshift64*.
pub(crate) struct Sizes(u64);

impl Sizes {
    pub(crate) fn new() -> Self {
        Self(42)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.draw() >> 32) as usize % bound
    }

    /// Returns a size in one of `octaves` octaves from `2^first` on, each equally likely.
    pub(crate) fn size(&mut self, first: u32, octaves: u64) -> NonZeroU64 {
        let draw = self.draw();
        let power = 1 << (u64::from(first) + (draw >> 32) % octaves);
        NonZeroU64::new(power | (draw & (power - 1))).unwrap_or(NonZeroU64::MIN)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
