//! A snapshot recorded from our allocator, with scopes, stacks and user metadata, two streams, a pending block, and an
//! out-of-memory error.

use std::num::NonZeroU64;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, MIB, Result, Stream};
use accelerator_tracker::history::{HistoryOptions, set_memory_metadata};
use accelerator_tracker::snapshot::{BlockState, Frame, MemorySnapshot, TraceAction};
use accelerator_tracker::tracker::scope;

type Device = &'static Accelerator<Sim>;

pub(crate) fn snapshot() -> MemorySnapshot {
    let device: Device = Accelerator::new(Sim::new(256 * MIB), 0, AllocatorConfig::default()).unwrap();
    let (allocator, stream) = (device.allocator(), device.default_stream());
    let side = device.dedicated_stream(0).unwrap();
    allocator.record_history(Some(HistoryOptions::default().recording()));

    let module = scope("layers.3");
    let kept = allocate(device, 30 * MIB - 100, stream).unwrap();
    drop(module);
    set_memory_metadata("step \"7\"");
    let module = scope("loss");
    let awaited = allocate(device, 1000, stream).unwrap();
    let freed = [3 * MIB, 64 * MIB].map(|bytes| allocate(device, bytes, side).unwrap());
    assert!(allocate(device, 300 * MIB, stream).is_err());
    drop(module);
    set_memory_metadata("");
    allocator.record_use(&awaited, side).unwrap();
    device.backend().hold(side.native());
    for allocation in freed.into_iter().chain([awaited]) {
        allocator.free(allocation).unwrap();
    }

    let mut snapshot = MemorySnapshot::default();
    snapshot.add(device.device(), device.properties(), &allocator.history());
    device.backend().release(side.native());
    allocator.free(kept).unwrap();
    has_everything(&snapshot);
    snapshot
}

#[inline(never)]
fn allocate(device: Device, bytes: u64, stream: Stream<Sim>) -> Result<Allocation<Sim>> {
    device.allocator().allocate(NonZeroU64::new(bytes).unwrap(), stream)
}

/// Checks that it contains everything that PyTorch is to read.
fn has_everything(snapshot: &MemorySnapshot) {
    let [entries] = &snapshot.device_traces[..] else { panic!("one device") };
    let count = |wanted: fn(TraceAction) -> bool| entries.iter().filter(|entry| wanted(entry.action)).count();
    assert_eq!(count(|action| action == TraceAction::Alloc), 4);
    assert_eq!(count(|action| action == TraceAction::FreeRequested), 3);
    assert_eq!(count(|action| action == TraceAction::FreeCompleted), 2);
    assert_eq!(count(|action| matches!(action, TraceAction::OutOfMemory { .. })), 1);
    let mut frames = entries.iter().flat_map(|entry| entry.frames.iter());
    // Line tables alone give function names without module paths.
    let ours = |frame: &Frame| frame.name.ends_with("allocate") && frame.filename.ends_with("recorded.rs");
    assert!(frames.clone().any(|frame| ours(frame) && frame.line > 0));
    assert!(frames.any(|frame| (&*frame.name, &*frame.filename) == ("loss", "scope")));
    assert!(entries.iter().any(|entry| &*entry.user_metadata == "step \"7\""));
    let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    assert!(blocks.any(|block| block.state == BlockState::PendingFree && !block.frames.is_empty()));
    assert!(snapshot.segments.iter().any(|segment| segment.stream != 0));
}
