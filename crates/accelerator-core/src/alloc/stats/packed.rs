//! A number of blocks and their size in one word.

use super::pair::Pair;

/// A number of blocks and their size in units of 512 bytes, which is what the sizes of blocks are multiples of. Both
/// are counted with one addition, and one look at two bits shows whether either is negative or too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed(i64);

/// The count is in the bits from here on.
const COUNT: u32 = 40;
const UNIT_BITS: u32 = 9;
/// The highest bit of each number. It is set if the number is negative, or too large.
const GUARDS: i64 = i64::MIN | BYTES_GUARD;
const BYTES_GUARD: i64 = 1 << (COUNT - 1);

impl Packed {
    /// What a word gets at most, so that freed blocks can be added to it for a long time.
    pub(super) const MOST: Pair = Pair([1 << (62 - COUNT), 1 << (COUNT - 2 + UNIT_BITS)]);

    /// One block without bytes.
    pub(crate) const ONE: Self = Self::new(1, 0);

    /// Blocks from this size on are not counted in words, so that no sum of two words wraps.
    pub(crate) const HUGE: u64 = 1 << 40;

    /// Packs two numbers, each of which is negative or not.
    #[inline(always)]
    pub(crate) const fn new(count: i64, bytes: i64) -> Self {
        Self((count << COUNT).wrapping_add(bytes >> UNIT_BITS))
    }

    /// Packs as much of two numbers as a word gets: nothing of a negative one, and whole units.
    #[inline(always)]
    pub(super) fn of(numbers: Pair) -> Self {
        let [count, bytes] = numbers.least(Self::MOST).increase().0;
        Self::new(count, bytes)
    }

    #[inline(always)]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    #[inline(always)]
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// Returns a word that [overflows](Self::overflow) if either of them does.
    #[inline(always)]
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether either number is negative or too large. Each is the sum of at most two numbers that are not.
    #[inline(always)]
    pub(super) const fn overflow(self) -> bool {
        self.0 & GUARDS != 0
    }

    /// As [`overflow`](Self::overflow), or whether another number is negative. The signs are looked at together.
    #[inline(always)]
    pub(super) const fn overflow_or_negative(self, number: i64) -> bool {
        ((self.0 | number) < 0) | (self.0 & BYTES_GUARD != 0)
    }

    /// Returns both numbers. Of the values with the guard bit, those in the quarter of the range below 0 are negative,
    /// and the others too large.
    #[inline(always)]
    pub(super) fn pair(self) -> Pair {
        let units = signed(self.0, COUNT);
        Pair::new(signed(self.0.wrapping_sub(units) >> COUNT, 64 - COUNT), units << UNIT_BITS)
    }
}

/// Returns a number of so many bits, a quarter of whose values are negative.
const fn signed(word: i64, bits: u32) -> i64 {
    let quarter = 1 << (bits - 2);
    (word.wrapping_add(quarter) & (4 * quarter - 1)) - quarter
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: i64 = 512;

    #[test]
    fn numbers_come_back_as_they_were() {
        let [most, most_bytes] = Packed::MOST.0;
        for count in [0, 1, 77, most, -1, -most] {
            for units in [0, 1, 3, most_bytes / UNIT, -1, -most_bytes / UNIT] {
                assert_eq!(Packed::new(count, units * UNIT).pair(), Pair::new(count, units * UNIT));
            }
        }
    }

    #[test]
    fn sums_that_are_negative_or_too_large_are_told() {
        let [most, most_bytes] = Packed::MOST.0;
        let numbers = [0, 1, 5, most];
        let sizes = [0, 512, 4096, most_bytes, Packed::HUGE as i64 - 512];
        for (count, bytes) in numbers.into_iter().flat_map(|count| sizes.map(|bytes| (count, bytes))) {
            for (other, less) in numbers.into_iter().flat_map(|count| sizes.map(|bytes| (count, bytes))) {
                let left = Packed::new(count, bytes).minus(Packed::new(other, less));
                let is_negative = count < other || bytes < less;
                assert_eq!(left.overflow(), is_negative, "{count} {bytes} {other} {less}");
                assert_eq!(Packed::default().or(left).overflow(), is_negative);
            }
        }
        for (count, units) in [(1, 0), (0, 1), (most, 0), (0, most_bytes / UNIT)] {
            let sum =
                Packed::new(most, most_bytes).plus(Packed::new(most - 1 + count, most_bytes - UNIT + units * UNIT));
            assert!(sum.overflow());
            assert_eq!(sum.pair(), Pair::new(2 * most - 1 + count, 2 * most_bytes - UNIT + units * UNIT));
        }
        let (mut word, one) = (Packed::new(most, most_bytes), Packed::new(0, Packed::HUGE as i64 - 512));
        let fitting = std::iter::from_fn(|| {
            word = word.plus(one);
            (!word.overflow()).then_some(())
        });
        assert_eq!(fitting.take(1000).count(), 128, "from a quarter of the range to half of it");
    }
}
