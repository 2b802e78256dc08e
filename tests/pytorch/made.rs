//! A snapshot with a little of everything that PyTorch's viewer can print.

use std::sync::Arc;

use accelerator_tracker::snapshot::{
    Block, BlockState, DeviceNotes, Frame, Frames, MemorySnapshot, Note, NoteKind, PoolKind, Segment, Setting,
    TraceAction, TraceEntry,
};

const BASE: u64 = 0x7000_0000_0000;

pub(crate) fn snapshot() -> MemorySnapshot {
    let frames = [
        frame("matmul", "model/attention.py", 17),
        frame("_PyEval_EvalFrameDefault", "ceval", 1),
        frame("call", "aten/src/core/boxing/impl.h", 9),
        frame("main \"é\"", "train.py", 0),
    ];
    let frames = Frames::from(frames.map(Arc::new));
    let large = [
        block(30 << 20, 30 << 20, BlockState::Allocated, &frames),
        block(4 << 20, 1000, BlockState::PendingFree, &frames),
        block(18 << 20, (18 << 20) - 100, BlockState::Allocated, &frames),
        block(12 << 20, 12 << 20, BlockState::Inactive, &Frames::from([])),
    ];
    let small = [
        block(512, 500, BlockState::Allocated, &frames),
        block((2 << 20) - 512, 0, BlockState::Inactive, &Frames::from([])),
    ];
    let other = [block(24 << 20, 24 << 20, BlockState::Allocated, &Frames::from([]))];
    let at = BASE + (1 << 30);
    let entries = vec![
        entry(TraceAction::SegmentAlloc, at, 64 << 20, &frames),
        entry(TraceAction::Alloc, at, 30 << 20, &frames),
        entry(TraceAction::Alloc, at + (30 << 20), 1000, &frames),
        entry(TraceAction::FreeRequested, at + (30 << 20), 1000, &frames),
        entry(TraceAction::Alloc, BASE + 100, 5, &frames),
        entry(TraceAction::Alloc, 4096, 7, &frames),
        TraceEntry {
            other: vec![("action".into(), Setting::Text("annotate".into()))],
            user_metadata: "step \"2\"".into(),
            ..entry(TraceAction::Other, at, 0, &frames)
        },
        entry(TraceAction::SegmentFree, 123, 2 << 20, &Frames::from([])),
        entry(TraceAction::SegmentFree, at, 64 << 20, &Frames::from([])),
        entry(TraceAction::OutOfMemory { device_free: 3 << 30 }, 0, 80 << 30, &frames),
        entry(TraceAction::FreeCompleted, 99, 1, &frames),
    ];
    // More blocks than there are letters.
    let many = (0..60).map(|index| entry(TraceAction::Alloc, at + 512 * index, 512, &frames)).collect();
    MemorySnapshot {
        segments: vec![
            segment(BASE, 0, PoolKind::Small, small.into()),
            segment(at, 0, PoolKind::Large, large.into()),
            segment(BASE + (2 << 30), u64::MAX, PoolKind::Large, other.into()),
        ],
        aliases: Vec::new(),
        device_traces: vec![Vec::new(), entries, many],
        settings: vec![("expandable_segments".to_owned(), Setting::Flag(false))],
        annotations: Vec::new(),
        notes: vec![DeviceNotes {
            device: 1,
            pool_names: vec![((0, 1), "weights".to_owned())],
            notes: vec![Note { before: 2, kind: NoteKind::CacheEmptied }],
            ..DeviceNotes::default()
        }],
    }
}

fn frame(name: &str, filename: &str, line: u32) -> Frame {
    Frame { name: name.into(), filename: filename.into(), line }
}

fn block(size: u64, requested_size: u64, state: BlockState, frames: &Frames) -> Block {
    Block { address: 0, size, requested_size, state, frames: Arc::clone(frames) }
}

/// Returns a segment with addresses for its blocks, and with its sums.
fn segment(address: u64, stream: u64, segment_type: PoolKind, mut blocks: Vec<Block>) -> Segment {
    let mut next = address;
    for block in &mut blocks {
        block.address = next;
        next += block.size;
    }
    let sum = |states: &[BlockState], size: fn(&Block) -> u64| {
        blocks.iter().filter(|block| states.contains(&block.state)).map(size).sum()
    };
    let active = [BlockState::Allocated, BlockState::PendingFree];
    Segment {
        device: 1,
        address,
        total_size: next - address,
        allocated_size: sum(&active[..1], |block| block.size),
        active_size: sum(&active, |block| block.size),
        requested_size: sum(&active, |block| block.requested_size),
        stream,
        segment_type,
        pool_id: (0, 1),
        is_expandable: false,
        is_paused: true, // a key that only we know
        frames: Frames::from([]),
        blocks,
    }
}

fn entry(action: TraceAction, address: u64, size: u64, frames: &Frames) -> TraceEntry {
    TraceEntry {
        action,
        address,
        size,
        stream: 0,
        time_us: 1_700_000_000_000_000,
        frames: Arc::clone(frames),
        pool_id: (0, 0),
        user_metadata: "".into(),
        compile_context: "N/A".into(),
        other: Vec::new(),
    }
}
