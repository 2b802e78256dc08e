//! Shared by the trials.

use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, GIB};
use accelerator_host::Host;
use accelerator_tracker::tracker::{MemoryUse, OperatorStats, TrackerStats};

/// Creates a trial for each function, with its name.
macro_rules! trials {
    ($($name:ident)+) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$({
                let path = concat!(module_path!(), "::", stringify!($name));
                let path = path.split_once("::").map_or(path, |(_, path)| path);
                libtest_mimic::Trial::test(path, || {
                    $name();
                    Ok(())
                })
            }),+]
        }
    };
}

pub(crate) use trials;

/// Each test uses new device numbers. Operator observers belong to the process, and distinguish devices by number.
static NUMBERS: AtomicU32 = AtomicU32::new(100);

pub(crate) fn sim(capacity: u64) -> &'static Accelerator<Sim> {
    opened(Sim::new(capacity))
}

pub(crate) fn host() -> &'static Accelerator<Host> {
    opened(Host::new(0, 4 * GIB))
}

fn opened<B: Backend>(backend: B) -> &'static Accelerator<B> {
    Accelerator::new(backend, NUMBERS.fetch_add(1, Ordering::Relaxed), AllocatorConfig::default()).unwrap()
}

pub(crate) fn memory(allocated: u64, active: u64, reserved: u64) -> MemoryUse {
    MemoryUse { allocated, active, reserved }
}

pub(crate) fn names(stats: &TrackerStats) -> Vec<&str> {
    stats.operators.iter().map(|operator| operator.name.as_str()).collect()
}

/// Returns a run of operators with these amounts allocated after each.
pub(crate) fn run(start: Option<u64>, operators: &[(&str, u64)]) -> TrackerStats {
    let operators = operators.iter().map(|(name, allocated)| {
        let memory = memory(*allocated, *allocated, *allocated);
        OperatorStats { name: (*name).to_owned(), time: None, memory }
    });
    let start = start.map(|start| memory(start, start, start));
    TrackerStats { start, operators: operators.collect(), ..TrackerStats::default() }
}
