//! Programs on the allocator of a simulated device whose driver fails on demand: allocations and frees by several
//! streams, settings, private pools, checkpoints, captures.
//!
//! After each step, the statistics equal those of a naive list of what is allocated, and no two allocations share
//! physical memory. Every few steps the allocator walks its own data structures. At the end everything is given back,
//! and nothing is counted.

mod bytes;
mod captures;
mod checks;
mod machine;
mod memory;
mod pools;
mod rest;

use self::bytes::Bytes;
use self::machine::Machine;

/// A longer program only takes longer.
const MOST_STEPS: usize = 256;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut machine = Machine::new(&mut bytes);
    for _ in 0..MOST_STEPS {
        if bytes.is_empty() {
            break;
        }
        machine.step(&mut bytes);
    }
    machine.finish();
}
