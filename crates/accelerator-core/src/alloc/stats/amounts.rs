//! Values of all quantities that streams count, for summing them and for distributing headroom.

use super::pair::{Pair, by_field};

/// One value for each counted quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// Blocks that are allocated, and their bytes.
    pub(crate) allocated: Pair,
    /// Blocks that are allocated, or freed but still used by a stream, and their bytes.
    pub(crate) active: Pair,
    /// The requested part of the active bytes, and the number of allocated oversize blocks.
    pub(crate) requested: Pair,
    /// Free blocks that share their segment with others, and their bytes.
    pub(crate) split: Pair,
}

/// Amounts for each pool and for both pools together. The latter need not be the sum: for headroom and peaks it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolAmounts {
    pub(crate) small: Amounts,
    pub(crate) large: Amounts,
    pub(crate) all: Amounts,
}

by_field!(Amounts { allocated, active, requested, split });
by_field!(PoolAmounts { small, large, all });

impl Amounts {
    /// Returns how far each value is below 0.
    #[inline(always)]
    pub(crate) fn missing(self) -> Self {
        (Self::default() - self).map(Pair::increase)
    }

    #[inline(always)]
    fn map(self, change: impl Fn(Pair) -> Pair) -> Self {
        let Self { allocated, active, requested, split } = self;
        let [allocated, active, requested, split] = [allocated, active, requested, split].map(change);
        Self { allocated, active, requested, split }
    }
}

impl PoolAmounts {
    /// Halves all values this many times.
    pub(crate) fn halved(self, times: u32) -> Self {
        let [small, large, all] =
            [self.small, self.large, self.all].map(|amounts| amounts.map(|pair| pair.halved(times)));
        Self { small, large, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_remainders_add_up_to_the_whole() {
        let amounts = |first: i64| {
            let pair = |place: i64| Pair::new(first + 7 * place, first + 7 * (place + 1));
            Amounts { allocated: pair(0), active: pair(2), requested: pair(4), split: pair(6) }
        };
        let whole = PoolAmounts { small: amounts(100), large: amounts(200), all: amounts(250) };
        let part = whole.halved(2);
        let left = whole - part;
        let each = |headroom: PoolAmounts| {
            let pools = [headroom.small, headroom.large, headroom.all];
            let pairs = pools.map(|of| [of.allocated, of.active, of.requested, of.split]).concat();
            pairs.into_iter().flat_map(|pair| pair.0)
        };
        for ((whole, part), left) in each(whole).zip(each(part)).zip(each(left)) {
            assert_eq!((part, left), (whole / 4, whole - whole / 4));
        }
        assert_eq!(left + part, whole);
    }
}
