//! The tracker and snapshots on a device of this backend.

use std::error::Error;

use accelerator_core::{Accelerator, ContextsOf, MIB, Recording};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::snapshot::MemorySnapshot;
use accelerator_tracker::tracker::Feed;
use sample_backend::Sample;

#[test]
fn the_tracker_sees_operators_and_their_memory() -> Result<(), Box<dyn Error>> {
    let device = Accelerator::<Sample>::open(0)?;
    let recording = Recording { max_entries: usize::MAX, contexts: ContextsOf::State, capture: None };
    device.allocator().record_history(Some(recording));
    let tracker = MemoryTracker::of(device);
    tracker.start_monitor(Feed::Automatic)?;
    let stream = device.default_stream();
    let mut buffer = {
        let _module = tracker.scope("encoder");
        device.allocate(3 * MIB, stream)?
    };
    buffer.fill(7, stream)?;
    assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, vec![7; 3 << 20]);
    tracker.stop()?;

    assert_eq!(tracker.device().to_string(), "sample:0");
    let summary = tracker.summary_top(1).to_string();
    assert!(summary.contains("encoder.allocate_0: 3.0MB"), "{summary}");

    let mut snapshot = MemorySnapshot::default();
    snapshot.add(device.device(), device.properties(), &device.allocator().history());
    let path = std::env::temp_dir().join(format!("sample-{}.pickle", std::process::id()));
    snapshot.write(&path)?;
    assert!(std::fs::metadata(&path)?.len() > 100);
    std::fs::remove_file(&path)?;
    Ok(())
}
