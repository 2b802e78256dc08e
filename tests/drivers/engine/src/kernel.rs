//! The kernels that simulated drivers recognize by name. Kernel code is never executed.

use crate::error::{Fault, Wrong};
use crate::face::Face;
use crate::resolve::{self, Toucher};
use crate::session::Session;

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `saxpy(u32 n, f32 a, const f32 *x, f32 *y)`: y = a x + y.
    Saxpy,
    /// `scale(u32 n, f32 a, f32 *x)`: x = a x.
    Scale,
    /// `spin(…)`: does nothing for ten milliseconds of virtual time.
    Spin,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 3] = [Self::Saxpy, Self::Scale, Self::Spin];

    /// Returns the kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Saxpy => "saxpy",
            Self::Scale => "scale",
            Self::Spin => "spin",
        }
    }

    /// Looks a kernel up by name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Returns the size in bytes of each parameter.
    pub fn parameters(self) -> &'static [usize] {
        match self {
            Self::Saxpy => &[4, 4, 8, 8],
            Self::Scale => &[4, 4, 8],
            Self::Spin => &[],
        }
    }
}

/// A kernel with its arguments and its number of threads. Each thread computes one element.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// The total number of threads.
    pub threads: u64,
    /// The bits of each argument.
    pub arguments: Vec<u64>,
}

impl Launch {
    fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    /// Returns the number of elements computed: one per thread, and at most `n`.
    fn elements(&self) -> u64 {
        self.argument(0).min(self.threads)
    }

    fn factor(&self) -> f32 {
        f32::from_bits(self.argument(1) as u32)
    }

    /// Returns the memory it touches, as address and bytes. The last range is the one that it writes.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let vectors = self.kernel.parameters().len().saturating_sub(2);
        (0..vectors).map(|index| (self.argument(2 + index), 4 * self.elements())).collect()
    }

    /// Returns how long it runs, in virtual nanoseconds.
    pub(crate) fn duration(&self) -> u64 {
        match self.kernel {
            Kernel::Saxpy | Kernel::Scale => 2_000 + self.elements() / 4,
            Kernel::Spin => 10_000_000,
        }
    }
}

impl<F: Face> Session<F> {
    pub(crate) fn run_kernel(&self, device: usize, launch: &Launch) -> Result<(), Fault> {
        let toucher = Toucher { device, kernel: true };
        let who = format!("kernel {}", launch.kernel.name());
        let ranges = launch.ranges();
        let mut vectors = Vec::new();
        for (index, (address, bytes)) in ranges.iter().enumerate() {
            let written = index + 1 == ranges.len();
            if !address.is_multiple_of(4) {
                let text = format!("{who} touches 4 bytes at {address:#x}, which is not a multiple of 4");
                return Err(Fault { wrong: Wrong::Misaligned, text });
            }
            vectors.push(self.touch(toucher, &who, written, *address, *bytes)?);
        }
        let Some(target) = vectors.last() else { return Ok(()) };
        let values: Vec<Vec<f32>> = vectors.iter().map(|spans| floats(&resolve::read(spans))).collect();
        let a = launch.factor();
        let result: Vec<u8> = match (launch.kernel, values.as_slice()) {
            (Kernel::Saxpy, [x, y]) => x.iter().zip(y).flat_map(|(x, y)| (a * x + y).to_ne_bytes()).collect(),
            (Kernel::Scale, [x]) => x.iter().flat_map(|x| (a * x).to_ne_bytes()).collect(),
            _ => return Ok(()),
        };
        resolve::write(target, &result);
        Ok(())
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words.map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
