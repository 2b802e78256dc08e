use std::num::NonZeroU64;

/// xorshift64*, as in the benchmark of PyTorch's allocator, so that both allocators serve the same requests.
pub(super) struct Generator(u64);

impl Generator {
    /// Creates the generator for the thread with this number.
    pub(super) fn of_thread(number: u64) -> Self {
        Self(42 + number)
    }

    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Draws a size from `octaves` octaves, the lowest of which starts at `2^first`. Each octave is equally likely.
    #[inline]
    pub(super) fn size(&mut self, first: u32, octaves: u64) -> NonZeroU64 {
        let draw = self.draw();
        let power = 1u64 << (u64::from(first) + (draw >> 32) % octaves);
        // Never 0, since the bit of the power of two is set. The compiler removes the check.
        NonZeroU64::new(power | (draw & (power - 1))).unwrap_or(NonZeroU64::MIN)
    }
}

/// Draws of PyTorch's side.
#[cfg(test)]
pub(super) mod known {
    /// A draw, and the two sizes that result from it.
    #[derive(Clone, Copy)]
    pub(crate) struct Draw {
        pub(crate) value: u64,
        pub(crate) size_of_17: u64,
        pub(crate) size_of_16: u64,
    }

    /// The first 64 draws of the first thread, and 64 more from number 4096 on.
    pub(crate) fn draws() -> [Vec<Draw>; 2] {
        let lines = include_str!("generator.txt").lines().filter(|line| !line.starts_with('#'));
        let mut draws: Vec<Draw> = lines.map(draw).collect();
        let later = draws.split_off(64);
        [draws, later]
    }

    fn draw(line: &str) -> Draw {
        let [value, size_of_17, size_of_16] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("expected three numbers in `{line}`")
        };
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
        Draw { value, size_of_17: size_of_17.parse().unwrap(), size_of_16: size_of_16.parse().unwrap() }
    }
}

#[cfg(test)]
mod tests {
    use super::known::{Draw, draws};
    use super::*;

    #[test]
    fn draws_and_sizes_are_those_of_pytorchs_side() {
        let (mut generator, [first, later]) = (Generator::of_thread(0), draws());
        assert_eq!((first.len(), later.len()), (64, 64));
        first.into_iter().for_each(|known| check(&mut generator, known));
        (64..4096).for_each(|_| _ = generator.draw());
        later.into_iter().for_each(|known| check(&mut generator, known));
    }

    fn check(generator: &mut Generator, known: Draw) {
        let Generator(state) = *generator;
        assert_eq!(Generator(state).size(9, 17).get(), known.size_of_17);
        assert_eq!(Generator(state).size(9, 16).get(), known.size_of_16);
        assert_eq!(generator.draw(), known.value);
    }

    #[test]
    fn every_thread_draws_its_own() {
        // The same formula with wider words, starting with the state of the second thread.
        let (mut generator, mut x, word) = (Generator::of_thread(1), 43u128, (1 << 64) - 1);
        for _ in 0..100 {
            x ^= x / (1 << 12);
            x ^= (x * (1 << 25)) & word;
            x ^= x / (1 << 27);
            assert_eq!(u128::from(generator.draw()), (x * 0x2545_F491_4F6C_DD1D) & word);
        }
    }
}
