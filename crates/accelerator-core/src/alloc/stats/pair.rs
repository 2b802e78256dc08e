//! Two numbers that are counted together.

use std::ops::{Add, Sub};

/// Two signed numbers, mostly a number of blocks and their bytes. Sums wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) [i64; 2]);

impl Pair {
    #[inline(always)]
    pub(crate) fn new(first: i64, second: i64) -> Self {
        Self([first, second])
    }

    /// Returns the element-wise minimum.
    #[inline(always)]
    pub(crate) fn least(self, other: Self) -> Self {
        self.each(other, i64::min)
    }

    /// Returns the positive part of each number.
    #[inline(always)]
    pub(crate) fn increase(self) -> Self {
        self.each(Self::default(), i64::max)
    }

    /// Halves both numbers this many times.
    pub(crate) fn halved(self, times: u32) -> Self {
        Self(self.0.map(|number| number >> times))
    }

    #[inline(always)]
    fn each(self, other: Self, with: impl Fn(i64, i64) -> i64) -> Self {
        Self::new(with(self.0[0], other.0[0]), with(self.0[1], other.0[1]))
    }
}

impl Add for Pair {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.each(other, i64::wrapping_add)
    }
}

impl Sub for Pair {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.each(other, i64::wrapping_sub)
    }
}

/// Implements field-wise addition and subtraction.
macro_rules! by_field {
    ($type:ident { $($field:ident),+ }) => {
        impl std::ops::Add for $type {
            type Output = Self;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field),+ }
            }
        }

        impl std::ops::Sub for $type {
            type Output = Self;

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Self { $($field: self.$field - other.$field),+ }
            }
        }
    };
}

pub(super) use by_field;
