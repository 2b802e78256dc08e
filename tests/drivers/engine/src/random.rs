//! The generator that chooses among permitted orders: SplitMix64.

/// A generator of numbers that a seed decides.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// One that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is small and not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}
