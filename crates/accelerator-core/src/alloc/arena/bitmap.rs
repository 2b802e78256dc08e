//! A set of small numbers that finds the next one without looking at each number between. Without the summary, the
//! allocations of recorded jobs under the policy `compact` take up to 6 % more instructions.

/// A bit for each number. A bit of the summary says whether a word of the bits has any.
#[derive(Debug, Default)]
pub(super) struct Bitmap {
    bits: Vec<u64>,
    summary: Vec<u64>,
}

impl Bitmap {
    /// Makes room for the numbers below `count`.
    pub(super) fn grow(&mut self, count: usize) {
        self.bits.resize(count.div_ceil(64), 0);
        self.summary.resize(self.bits.len().div_ceil(64), 0);
    }

    #[inline(always)]
    pub(super) fn set(&mut self, number: usize) {
        self.bits[number / 64] |= bit(number);
        self.summary[number / 4096] |= bit(number / 64);
    }

    #[inline(always)]
    pub(super) fn clear(&mut self, number: usize) {
        self.bits[number / 64] &= !bit(number);
        if self.bits[number / 64] == 0 {
            self.summary[number / 4096] &= !bit(number / 64);
        }
    }

    /// Returns the first number in the set from this one on.
    #[inline]
    pub(super) fn first_from(&self, number: usize) -> Option<usize> {
        first_in_word(&self.bits, number).or_else(|| {
            let next = number / 64 + 1;
            let word = first_in_word(&self.summary, next).or_else(|| {
                let behind = (next / 64 + 1..self.summary.len()).find(|word| self.summary[*word] != 0)?;
                first_in_word(&self.summary, behind * 64)
            })?;
            first_in_word(&self.bits, word * 64)
        })
    }
}

#[inline(always)]
fn bit(number: usize) -> u64 {
    1 << (number % 64)
}

/// Returns the first number from this one on that is in the same word, and whose bit is set.
#[inline(always)]
fn first_in_word(words: &[u64], number: usize) -> Option<usize> {
    let bits = words.get(number / 64)? & (u64::MAX << (number % 64));
    (bits != 0).then(|| number / 64 * 64 + bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn the_next_number_is_that_of_an_ordered_set() {
        let mut random = Rng::with_seed(1);
        let (mut bitmap, mut model) = (Bitmap::default(), BTreeSet::new());
        bitmap.grow(20_000);
        for round in 0..50_000 {
            // Rounds with few numbers leave whole words of the summary empty.
            let number = random.usize(..20_000) / if round % 20_000 < 10_000 { 1 } else { 700 };
            match random.bool() && round % 10_000 > 300 {
                true => {
                    let near = model.range(number..).next().copied().unwrap_or(number);
                    model.remove(&near);
                    bitmap.clear(near);
                }
                false if model.len() < 40 => {
                    model.insert(number);
                    bitmap.set(number);
                }
                false => {}
            }
            let from = random.usize(..21_000);
            assert_eq!(bitmap.first_from(from), model.range(from..).next().copied());
        }
    }
}
