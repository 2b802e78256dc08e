#[path = "toy_backend.rs"]
mod toy_backend;

use std::error::Error;

use accelerator_conformance::{Selection, Suite};
use accelerator_core::{Accelerator, MIB};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::Feed;

use toy_backend::Toy;

pub fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: use
    let device = Accelerator::<Toy>::open(0)?;
    let stream = device.default_stream();
    let mut buffer = device.allocate(4 * MIB, stream)?; // from the cache, which the core keeps
    buffer.fill(7, stream)?;
    assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, vec![7; 4 << 20]);
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 20 << 20);
    // ANCHOR_END: use

    // ANCHOR: track
    let tracker = MemoryTracker::of(device);
    tracker.start_monitor(Feed::Automatic)?; // allocations, copies and fills are operators
    let weights = {
        let _module = tracker.scope("encoder");
        device.allocate(8 * MIB, stream)?
    };
    tracker.stop()?;
    println!("{}", tracker.summary_top(1)); // encoder.allocate_0: 8.0MB
    // ANCHOR_END: track
    drop(weights);
    let summary = tracker.summary_top(1).to_string();
    assert!(summary.contains("encoder.allocate_0: 8.0MB"), "{summary}");

    // Most of the suite: the cases that are left out take a minute.
    let selection = Selection::default().without("D54").without("K94").without("(compact)");
    let report = Suite::<Toy>::new("toy").run(&selection);
    assert!(!report.has_failed());
    Ok(())
}
