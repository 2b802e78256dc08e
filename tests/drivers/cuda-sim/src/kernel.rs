//! The kernels that the driver knows by name; no PTX is ever run.

use crate::code::Code;
use crate::resolve::{self, Toucher};
use crate::state::Driver;
use crate::work::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `saxpy(u32 n, f32 a, const f32 *x, f32 *y)`: y = a x + y.
    Saxpy,
    /// `scale(u32 n, f32 a, f32 *x)`: x = a x.
    Scale,
    /// `spin(…)`: nothing, for ten milliseconds of virtual time.
    Spin,
}

impl Kernel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Saxpy => "saxpy",
            Self::Scale => "scale",
            Self::Spin => "spin",
        }
    }

    /// The bytes of each parameter.
    pub(crate) fn parameters(self) -> &'static [usize] {
        match self {
            Self::Saxpy => &[4, 4, 8, 8],
            Self::Scale => &[4, 4, 8],
            Self::Spin => &[],
        }
    }

    /// Those among the entries of a PTX text that the driver knows: by name, and with the same parameters.
    pub(crate) fn all_in(text: &str) -> Vec<Self> {
        let entries = text.split(".entry").skip(1).filter_map(|entry| {
            let (name, rest) = entry.split_once('(')?;
            let parameters = rest.split_once(')')?.0;
            let named = |kernel: &Self| kernel.name() == name.trim();
            let kernel = [Self::Saxpy, Self::Scale, Self::Spin].into_iter().find(named)?;
            let same = widths(parameters) == kernel.parameters();
            (same || kernel == Self::Spin).then_some(kernel)
        });
        entries.collect()
    }
}

/// The bytes of each parameter of a list such as `.param .u32 n, .param .u64 .ptr .global .align 4 x`; 0 for
/// another type.
fn widths(parameters: &str) -> Vec<usize> {
    let types = parameters.split(',').filter_map(|parameter| parameter.split_whitespace().nth(1));
    let width = |name: &str| match name.trim_start_matches(|c: char| !c.is_ascii_digit()) {
        "32" => 4,
        "64" => 8,
        _ => 0,
    };
    types.map(width).collect()
}

/// A kernel with its arguments, as bits, and the threads that run it.
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) threads: u64,
    pub(crate) arguments: Vec<u64>,
}

impl Launch {
    fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    /// Elements that are computed: one a thread, and no more than asked.
    fn elements(&self) -> u64 {
        self.argument(0).min(self.threads)
    }

    fn factor(&self) -> f32 {
        f32::from_bits(self.argument(1) as u32)
    }

    /// Memory that it touches, by address and bytes; the last of them it writes.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let vectors = self.kernel.parameters().len().saturating_sub(2);
        (0..vectors).map(|index| (self.argument(2 + index), 4 * self.elements())).collect()
    }

    /// Virtual nanoseconds that it takes.
    pub(crate) fn duration(&self) -> u64 {
        match self.kernel {
            Kernel::Saxpy | Kernel::Scale => 2_000 + self.elements() / 4,
            Kernel::Spin => 10_000_000,
        }
    }
}

impl Driver {
    pub(crate) fn run_kernel(&self, device: usize, launch: &Launch) -> Result<(), Fault> {
        let toucher = Toucher { device, kernel: true };
        let who = format!("kernel {}", launch.kernel.name());
        let ranges = launch.ranges();
        let mut vectors = Vec::new();
        for (index, (address, bytes)) in ranges.iter().enumerate() {
            let written = index + 1 == ranges.len();
            if !address.is_multiple_of(4) {
                let text = format!("{who} touches 4 bytes at {address:#x}, which is no multiple of 4");
                return Err(Fault { code: Code::MISALIGNED_ADDRESS, text });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_parameters() {
        let text = ".version 8.0
            .visible .entry saxpy(
                .param .u32 n,
                .param .f32 a, .param .u64 .ptr x, .param .u64 y
            ) {}
            .visible .entry scale(.param .u32 n, .param .u64 x) {}
            .entry spin() {}
            .entry other(.param .u32 n) {}";
        assert_eq!(Kernel::all_in(text), [Kernel::Saxpy, Kernel::Spin]);
        assert_eq!(Kernel::all_in("saxpy"), []);
    }
}
