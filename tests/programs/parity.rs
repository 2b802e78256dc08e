//! PyTorch's traces on a simulated driver: the output must equal that of PyTorch's allocator.

use std::num::NonZeroU64;

use accelerator_conformance::Faulty;
use accelerator_core::{Backend, DevicePtr, MIB};
use libtest_mimic::Failed;

use super::process::Outcome;
use super::simulated::Simulated;
use crate::recorded::{self, Recorded};

/// Returns the traces that are expandable throughout. Others cannot be compared, because the simulated driver allocates
/// address space and memory from one range, and PyTorch's from two. The models are left out because they take long.
pub(crate) fn expandable() -> Vec<Recorded> {
    let mut traces = recorded::expandable();
    traces.retain(|trace| trace.name.starts_with("oracle::"));
    traces
}

pub(crate) fn all<B: Simulated>(traces: Vec<Recorded>) -> Outcome {
    assert!(!traces.is_empty());
    for trace in traces {
        trace
            .compare(replay::<B>)
            .map_err(|error| format!("{}: {}", trace.name, error.message().unwrap_or_default()))?;
        assert_eq!(B::live()[0], 0, "{}", trace.name);
    }
    Ok(())
}

fn replay<B: Backend>(trace: String) -> Result<String, Failed> {
    B::probe()?;
    let opened = B::open(0)?; // takes addresses, too
    let first = next_address(&opened)?;
    let device = |capacity| Ok(Faulty::new(opened).with_memory(capacity));
    // The base of PyTorch's address space.
    let base = if trace.contains("expandable_segments:True") { 0x4000_0000_0000 } else { 0 };
    Ok(counted_from(first, base, &recorded::replay(trace, device)?))
}

/// Returns the address of the next allocation. The driver allocates upwards and never reuses addresses.
fn next_address<B: Backend>(device: &B) -> Result<u64, Failed> {
    let len = NonZeroU64::new(2 * MIB).ok_or("no length")?;
    let at = device.alloc(len)?;
    // SAFETY: It was just allocated, and nothing uses it.
    #[allow(unsafe_code)]
    unsafe {
        device.dealloc(at, len);
    }
    Ok(at.trace_address() + 2 * MIB)
}

/// Rewrites addresses in the text as offsets from the first one, plus `base`.
fn counted_from(first: u64, base: u64, text: &str) -> String {
    let word = |word: &str| match word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(address)) if address >= first => format!("{:#x}", address - first + base),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
