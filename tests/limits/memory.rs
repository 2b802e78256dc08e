//! How much host memory a live block of the device needs.

use std::num::NonZeroU64;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, GIB};

use crate::counting::{counts, reset_most};

const LIMIT: i64 = 96;

/// Allocates a million small blocks on one stream. The test's own handles are allocated before counting starts.
///
/// Memory that grows in large steps is at its worst right after growing, and worse still during it, when the old and
/// the new copy both count, though a system that moves pages needs no second copy. Both maxima count from ten thousand
/// blocks on, where the allocator's fixed cost no longer shows.
#[test]
fn a_live_block_takes_little_host_memory() {
    const LIVE: usize = 1_000_000;
    let accelerator = Accelerator::new(Sim::new(1024 * GIB), 0, AllocatorConfig::default()).unwrap();
    let (allocator, stream) = (accelerator.allocator(), accelerator.default_stream());
    let mut handles = Vec::with_capacity(LIVE);
    let before = counts().in_use;
    let [mut between_calls, mut in_a_call] = [(0, 0); 2];
    for live in 1..=LIVE as i64 {
        reset_most();
        handles.push(allocator.allocate(NonZeroU64::new(512).unwrap(), stream).unwrap());
        if live >= 10_000 {
            let of_each = |bytes: i64| ((bytes - before).div_euclid(live) + 1, live);
            between_calls = between_calls.max(of_each(counts().in_use));
            in_a_call = in_a_call.max(of_each(counts().most));
        }
    }
    let at_end = (counts().in_use - before).div_euclid(LIVE as i64) + 1;
    handles.into_iter().for_each(|handle| allocator.free(handle).unwrap());
    let report = format!(
        "bytes of the host for a live block: {at_end} with {LIVE} blocks; between two calls {} at most, with {}; in a call {} \
         at most, in that which makes number {}",
        between_calls.0, between_calls.1, in_a_call.0, in_a_call.1
    );
    println!("{report}");
    assert!(between_calls.0 <= LIMIT, "the limit is {LIMIT}: {report}");
    assert!(in_a_call.0 <= 2 * LIMIT, "the momentary limit is twice {LIMIT}: {report}");
}
