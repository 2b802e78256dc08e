//! Two numbers that are counted together.

use std::ops::{Add, Sub};

/// Two signed numbers: mostly blocks and their bytes. Sums wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) [i64; 2]);

impl Pair {
    #[inline(always)]
    pub(crate) fn new(first: i64, second: i64) -> Self {
        Self([first, second])
    }

    /// Whether it has less than that of one.
    #[inline(always)]
    pub(crate) fn lacks(self, other: Self) -> bool {
        self.0[0] < other.0[0] || self.0[1] < other.0[1]
    }

    /// The lesser of both firsts and of both seconds.
    pub(crate) fn least(self, other: Self) -> Self {
        Self::new(self.0[0].min(other.0[0]), self.0[1].min(other.0[1]))
    }

    /// What is more than 0 of each.
    #[inline(always)]
    pub(crate) fn increase(self) -> Self {
        Self::new(self.0[0].max(0), self.0[1].max(0))
    }
}

impl Add for Pair {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self::new(self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1]))
    }
}

impl Sub for Pair {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self::new(self.0[0].wrapping_sub(other.0[0]), self.0[1].wrapping_sub(other.0[1]))
    }
}
