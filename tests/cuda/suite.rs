//! The whole conformance suite on the simulated driver: with several orders of its work, and with each driver call
//! failing in turn.

use accelerator_cuda::Cuda;
use libtest_mimic::Trial;

use crate::programs::{long, suite};
use crate::rig::trial;

/// The suite compares elapsed time with the host's clock.
const REAL: (&str, &str) = ("CUDA_SIM_CLOCK", "real");

pub(crate) fn trials() -> Vec<Trial> {
    let orders = [
        trial("suite::seed_1", &[("CUDA_SIM_SEED", "1"), REAL], suite::passes_without_compact::<Cuda>),
        trial("suite::seed_2", &[("CUDA_SIM_SEED", "2"), REAL], suite::passes::<Cuda>),
    ];
    let faults = calls()
        .map(|call| trial(format!("suite::with_a_failing::{call}"), &[REAL], || suite::each_in_turn::<Cuda>(&[])));
    // They take several minutes, even in release builds.
    orders.into_iter().chain(faults).map(long).collect()
}

/// Returns the driver functions that the backend calls, from the backend's own table.
fn calls() -> impl Iterator<Item = &'static str> {
    let table = include_str!("../../backends/cuda/src/calls.rs");
    let entries = table.lines().filter_map(|line| line.trim().split_once(" \""));
    let symbols = entries.filter_map(|(name, rest)| {
        let symbol = rest.split('"').next()?;
        (symbol.starts_with(name) && name != "cuNoSuchCall").then_some(symbol)
    });
    symbols.filter(|symbol| !BEYOND.contains(symbol))
}

/// Calls that no case of the suite reaches: error names, CUDA's own capabilities, which have separate trials, and what
/// newer calls replace.
const BEYOND: [&str; 12] = [
    "cuCtxEnablePeerAccess",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGetErrorName",
    "cuGraphGetEdges",
    "cuMemAddressFree",
    "cuMemRelease",
    "cuMemcpyAsync",
    "cuMemcpyPeerAsync",
    "cuStreamDestroy_v2",
    "cuStreamGetCtx",
    "cuStreamGetCtx_v2",
];
