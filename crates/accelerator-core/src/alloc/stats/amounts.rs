//! Numbers for everything that streams count, where they are summed up and headroom is dealt out.

use std::ops::{Add, AddAssign, Index, Sub};

/// So much of each [`Quantity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(pub(crate) [i64; 8]);

/// The places in [`Amounts`].
#[derive(Clone, Copy)]
pub(crate) enum Quantity {
    /// Blocks that are allocated.
    Allocated,
    AllocatedBytes,
    /// Blocks that are allocated, or freed and still in use by a stream.
    Active,
    ActiveBytes,
    /// What of the active bytes was asked for.
    Requested,
    /// Free blocks that share their segment.
    Split,
    SplitBytes,
    /// Allocated blocks that are kept whole: of both pools together.
    Oversize,
}

impl Amounts {
    fn each(self, other: Self, with: impl Fn(i64, i64) -> i64) -> Self {
        Self(std::array::from_fn(|quantity| with(self.0[quantity], other.0[quantity])))
    }

    /// What of each is missing to nothing.
    pub(crate) fn missing(self) -> Self {
        Self(self.0.map(|amount| (-amount).max(0)))
    }

    fn halved(self, times: u32) -> Self {
        Self(self.0.map(|amount| amount >> times))
    }
}

impl Index<Quantity> for Amounts {
    type Output = i64;

    fn index(&self, quantity: Quantity) -> &i64 {
        &self.0[quantity as usize]
    }
}

impl Add for Amounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.each(other, i64::wrapping_add)
    }
}

impl Sub for Amounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.each(other, i64::wrapping_sub)
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Headroom of a stream: what may be added to each pool, and to both together.
#[derive(Clone, Copy)]
pub(crate) struct HeadroomAmounts {
    pub(crate) pools: [Amounts; 2],
    pub(crate) all: Amounts,
}

impl HeadroomAmounts {
    pub(crate) const NONE: Self = Self { pools: [Amounts([0; 8]); 2], all: Amounts([0; 8]) };

    /// Half of it, half of that, and so on.
    pub(crate) fn halved(self, times: u32) -> Self {
        Self { pools: self.pools.map(|amounts| amounts.halved(times)), all: self.all.halved(times) }
    }
}

impl Add for HeadroomAmounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let pools = [self.pools[0] + other.pools[0], self.pools[1] + other.pools[1]];
        Self { pools, all: self.all + other.all }
    }
}

impl Sub for HeadroomAmounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let pools = [self.pools[0] - other.pools[0], self.pools[1] - other.pools[1]];
        Self { pools, all: self.all - other.all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_and_what_is_left_are_the_whole() {
        let amounts = |first| Amounts(std::array::from_fn(|quantity| first + 7 * quantity as i64));
        let whole = HeadroomAmounts { pools: [amounts(100), amounts(200)], all: amounts(250) };
        let part = whole.halved(2);
        let left = whole - part;
        let each = |headroom: HeadroomAmounts| [headroom.pools[0], headroom.pools[1], headroom.all];
        for ((whole, part), left) in each(whole).into_iter().zip(each(part)).zip(each(left)) {
            assert_eq!(part, Amounts(whole.0.map(|amount| amount / 4)));
            assert_eq!(left, Amounts(std::array::from_fn(|quantity| whole.0[quantity] - part.0[quantity])));
            assert_eq!(left + part, whole);
        }
    }
}
