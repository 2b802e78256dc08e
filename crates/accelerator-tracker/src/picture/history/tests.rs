#![allow(clippy::unwrap_used, reason = "a test stops at anything unexpected")]

use std::path::Path;

use super::*;
use crate::picture::Series;
use crate::snapshot::{Annotation, Block, DeviceNotes, Frame};

const MIB: u64 = 1 << 20;

fn entry(action: TraceAction, address: u64, size: u64, time_us: i64) -> TraceEntry {
    TraceEntry {
        action,
        address,
        size,
        stream: 0,
        time_us,
        frames: Arc::default(),
        pool_id: (0, 0),
        user_metadata: Arc::default(),
        compile_context: Arc::default(),
        other: Vec::new(),
    }
}

fn block(address: u64, size: u64, state: BlockState) -> Block {
    Block { address, size, requested_size: size - 12, state, frames: Arc::default() }
}

fn segment(address: u64, blocks: Vec<Block>) -> Segment {
    let total = |state: Option<BlockState>| {
        blocks.iter().filter(|block| state.is_none_or(|state| block.state == state)).map(|block| block.size).sum()
    };
    Segment {
        device: 0,
        address,
        total_size: total(None),
        allocated_size: total(Some(BlockState::Allocated)),
        active_size: total(Some(BlockState::Allocated)) + total(Some(BlockState::PendingFree)),
        requested_size: 0,
        stream: 0,
        segment_type: PoolKind::Small,
        pool_id: (0, 0),
        is_expandable: false,
        is_paused: false,
        frames: Arc::default(),
        blocks,
    }
}

/// Returns a snapshot in which a block of 4 KiB exists at the start. Another block is allocated. The old block is
/// freed, and its free completes later. A segment is created and released, and meanwhile a block is allocated and
/// freed.
fn snapshot() -> MemorySnapshot {
    let old = 0x1000;
    let mut made = entry(TraceAction::Alloc, 0x3000, 1_000, 20);
    let frame = Frame { name: "forward".into(), filename: "/models/model.py".into(), line: 7 };
    made.frames = [Arc::new(frame)].into();
    let trace = vec![
        made,
        entry(TraceAction::FreeRequested, old, 4_084, 30),
        entry(TraceAction::SegmentAlloc, 0x100_0000, 2 * MIB, 40),
        entry(TraceAction::Alloc, 0x100_0000, 512, 50),
        entry(TraceAction::FreeRequested, 0x100_0000, 512, 60),
        entry(TraceAction::FreeCompleted, 0x100_0000, 512, 70),
        entry(TraceAction::SegmentFree, 0x100_0000, 2 * MIB, 80),
        entry(TraceAction::FreeCompleted, old, 4_084, 90),
        entry(TraceAction::OutOfMemory { device_free: 0 }, 0, 1 << 40, 95),
    ];
    let blocks = vec![
        block(old, 0x2000, BlockState::Inactive),
        block(0x3000, 1_024, BlockState::Allocated),
        block(0x3400, 2 * MIB - 0x2400, BlockState::Inactive),
    ];
    let mark = |stage: &str, time_us| Annotation { stage: stage.into(), name: "step".into(), device: 0, time_us };
    MemorySnapshot {
        segments: vec![segment(old, blocks), Segment { device: 1, ..segment(0x900_0000, vec![]) }],
        device_traces: vec![trace],
        annotations: vec![mark("START", 35), mark("END", 90)],
        notes: vec![DeviceNotes {
            total_memory: 16 << 30,
            name: "Sim".to_owned(),
            dropped: 3,
            ..DeviceNotes::default()
        }],
        ..MemorySnapshot::default()
    }
}

#[test]
fn counts_are_reckoned_back_from_the_end() {
    let profile = Profile::of_snapshot("run", &snapshot(), 0);
    let of = |series: Series| profile.samples.iter().map(|sample| series.of(sample)).collect::<Vec<_>>();
    assert_eq!(profile.allocated_before, Some(4_096));
    assert_eq!(of(Series::Allocated), [5_120, 1_024, 1_024, 1_536, 1_024, 1_024, 1_024, 1_024, 1_024]);
    assert_eq!(of(Series::Active), [5_120, 5_120, 5_120, 5_632, 5_632, 5_120, 5_120, 1_024, 1_024]);
    let (one, two) = (2 * MIB, 4 * MIB);
    assert_eq!(of(Series::Reserved), [one, one, two, two, two, two, one, one, one]);
    let names: Vec<_> = profile.samples.iter().map(|sample| &*sample.name).collect();
    assert_eq!((names[0], names[1], names[8]), ("forward, model.py:7", "free 3.99 KiB", "out of memory 1.00 TiB"));
    assert_eq!(profile.capacity, Some(16 << 30));
    let facts: Vec<_> = profile.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(facts, [("device", "Sim"), ("older entries dropped", "3")]);
    assert_eq!(profile.markers, [Marker { name: "step".into(), call: 2 }]);
}

#[test]
fn the_scope_of_a_tracker_comes_before_calls() {
    let frame = |name: &str, filename: &str| Arc::new(Frame { name: name.into(), filename: filename.into(), line: 0 });
    let mut snapshot = snapshot();
    snapshot.device_traces[0][0].frames = [frame("allocate", "buffer.rs"), frame("layers.0.forward", "scope")].into();
    assert_eq!(&*Profile::of_snapshot("run", &snapshot, 0).samples[0].name, "layers.0.forward");
}

#[test]
fn allocations_live_from_call_to_call() {
    let profile = Profile::of_snapshot("run", &snapshot(), 0);
    let spans: Vec<_> = profile.spans.iter().map(|span| (span.bytes, span.start, span.end)).collect();
    assert_eq!(spans, [(1_000, Some(0), None), (4_084, None, Some(1)), (512, Some(3), Some(4))]);
}

#[test]
fn maps_are_those_of_their_moments() {
    let profile = Profile::of_snapshot("run", &snapshot(), 0);
    let bytes = |moment: &Moment, state| moment.segments.iter().map(|segment| segment.bytes(state)).sum::<u64>();
    assert!(profile.moments.len() > 5 && profile.moments.is_sorted_by_key(|moment| moment.call));
    for moment in &profile.moments {
        let sample = &profile.samples[moment.call];
        assert_eq!(bytes(moment, BlockState::Allocated), sample.memory.allocated, "{}", moment.name);
        let active = sample.memory.allocated + bytes(moment, BlockState::PendingFree);
        assert_eq!(active, sample.memory.active, "{}", moment.name);
        assert_eq!(
            moment.segments.iter().map(MapSegment::size).sum::<u64>(),
            sample.memory.reserved,
            "{}",
            moment.name
        );
    }
    let last = profile.moments.last().unwrap();
    assert_eq!((&*last.name, &*last.segments[0].blocks[1].scope, last.segments.len()), ("the end", "", 1));
    assert_eq!(profile.moments[profile.moment_of_the_peak()].name, "peak allocated");
}

#[test]
fn pytorchs_own_snapshot_agrees_with_its_statistics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pytorch");
    let snapshot = MemorySnapshot::read(folder.join("tiny_transformer.snapshot.pickle")).unwrap();
    let profile = Profile::of_snapshot("tiny transformer", &snapshot, 0);
    let statistics = std::fs::read(folder.join("tiny_transformer.memory_stats.json")).unwrap();
    let statistics: serde_json::Value = serde_json::from_slice(&statistics).unwrap();
    let last = profile.samples.last().unwrap();
    let current = |name: &str| statistics[format!("{name}.all.current")].as_u64().unwrap();
    assert_eq!(last.memory.allocated, current("allocated_bytes"));
    assert_eq!(last.memory.active, current("active_bytes"));
    assert_eq!(last.memory.reserved, current("reserved_bytes"));
    // Peaks use requests that were rounded up, since a history does not contain the sizes of blocks.
    let peak = |name: &str| statistics[format!("{name}.all.peak")].as_u64().unwrap();
    let (_, allocated) = profile.peak(Series::Allocated).unwrap();
    assert!(allocated <= peak("allocated_bytes") && allocated > peak("allocated_bytes") * 98 / 100);
    assert_eq!(profile.peak(Series::Reserved).unwrap().1, peak("reserved_bytes"));
}

/// A segment grows by pages, loses a page in its middle, which comes back, and later loses another page.
#[test]
fn pages_of_expandable_segments_are_followed() {
    let start = 64 * MIB;
    let page = |action, number: u64, time| entry(action, start + 2 * number * MIB, 2 * MIB, time);
    let trace = vec![
        page(TraceAction::SegmentMap, 0, 1),
        entry(TraceAction::SegmentMap, start + 2 * MIB, 6 * MIB, 2),
        entry(TraceAction::Alloc, start, 3 * MIB, 3),
        entry(TraceAction::Alloc, start + 6 * MIB, MIB, 4),
        page(TraceAction::SegmentUnmap, 2, 5),
        entry(TraceAction::Alloc, start + 3 * MIB, MIB, 6),
        page(TraceAction::SegmentMap, 2, 7),
        entry(TraceAction::Alloc, start + 4 * MIB, 2 * MIB, 8),
        page(TraceAction::SegmentUnmap, 7, 9),
    ];
    let blocks = [(0, 3), (3, 1), (4, 2), (6, 1)];
    let mut blocks: Vec<_> = blocks.map(|(at, size)| block(start + at * MIB, size * MIB, BlockState::Allocated)).into();
    blocks.push(block(start + 7 * MIB, MIB, BlockState::Inactive));
    let end = Segment { is_expandable: true, ..segment(start, blocks) };
    let entries = trace.len();
    let snapshot = MemorySnapshot { segments: vec![end], device_traces: vec![trace], ..MemorySnapshot::default() };
    let profile = Profile::of_snapshot("run", &snapshot, 0);
    let reserved: Vec<_> = profile.samples.iter().map(|sample| sample.memory.reserved / MIB).collect();
    assert_eq!(reserved, [4, 10, 10, 10, 8, 8, 10, 10, 8], "the last page existed before");
    let mut state = State::at_the_end(&snapshot.segments.iter().collect::<Vec<_>>(), &[]);
    let ranges = |state: &State| {
        let range = |range: MapSegment| ((range.address - start) / MIB, range.size() / MIB);
        state.map().into_iter().map(range).collect::<Vec<_>>()
    };
    let mut found = vec![ranges(&state)];
    for entry in snapshot.device_traces[0].iter().rev() {
        state.undo(entry);
        found.push(ranges(&state));
    }
    assert_eq!(found[2], [(0, 8), (14, 2)]);
    assert_eq!(found[4], [(0, 4), (6, 2), (14, 2)], "the page in the middle is gone");
    assert_eq!(found[entries], [(14, 2)]);
    assert_eq!(state.reserved, i128::from(2 * MIB));
    for entry in &snapshot.device_traces[0] {
        state.apply(entry);
    }
    assert_eq!(ranges(&state), [(0, 8)]);
}

/// A block in an alias is freed and allocated again. Only at the end is it known which bytes of segments it uses. They
/// count once.
#[test]
fn blocks_of_aliases_count_once() {
    let (start, second) = (64 * MIB, 1 << 40);
    let backing = |at: u64, state| block(start + at * MIB, MIB, state);
    let [used, aliased] = [BlockState::Allocated, BlockState::Aliased];
    let blocks = [backing(0, used), backing(1, aliased), backing(2, used), backing(3, aliased)];
    let segments = vec![Segment { is_expandable: true, ..segment(start, blocks.into()) }];
    let aliases = vec![segment(second, vec![block(second, 2 * MIB, used)])];
    let trace = vec![
        entry(TraceAction::SegmentMap, start, 4 * MIB, 1),
        entry(TraceAction::Alloc, start, MIB, 2),
        entry(TraceAction::Alloc, start + 2 * MIB, MIB, 3),
        entry(TraceAction::Alloc, second, 2 * MIB, 4),
        entry(TraceAction::FreeRequested, second, 2 * MIB, 5),
        entry(TraceAction::FreeCompleted, second, 2 * MIB, 6),
        entry(TraceAction::Alloc, second, 2 * MIB, 7),
        entry(TraceAction::Snapshot, 0, 0, 8),
    ];
    let snapshot = MemorySnapshot { segments, aliases, device_traces: vec![trace], ..Default::default() };
    let profile = Profile::of_snapshot("run", &snapshot, 0);
    let of = |series: Series| profile.samples.iter().map(|sample| series.of(sample) / MIB).collect::<Vec<_>>();
    assert_eq!(of(Series::Allocated), [0, 1, 2, 4, 2, 2, 4, 4]);
    assert_eq!(of(Series::Reserved), [4; 8]);
    let of_moment = |call: usize| {
        let moment = profile.moments.iter().find(|moment| moment.call == call).unwrap();
        let segment = |map: &MapSegment| {
            let states: Vec<_> = map.blocks.iter().map(|block| block.state).collect();
            (map.address, map.is_alias, states)
        };
        moment.segments.iter().map(segment).collect::<Vec<_>>()
    };
    let free = BlockState::Inactive;
    let alias = (second, true, vec![used]);
    assert_eq!(of_moment(7), [(start, false, vec![used, aliased, used, aliased]), alias.clone()]);
    assert_eq!(of_moment(3), [(start, false, vec![used, free, used, free]), alias]);
    assert_eq!(of_moment(5), [(start, false, vec![used, free, used, free])]);
    assert_eq!(profile.spans.len(), 4, "the aliased bytes are not allocations");
    let at_peak = &profile.moments[profile.moment_of_the_peak()];
    let allocated = at_peak.segments.iter().map(|segment| segment.bytes(used));
    assert_eq!(allocated.sum::<u64>(), 4 * MIB);
}

#[test]
fn a_file_that_does_not_fit_together_is_drawn_as_far_as_it_goes() {
    let mut snapshot = snapshot();
    let trace = &mut snapshot.device_traces[0];
    trace.extend([
        entry(TraceAction::SegmentFree, 0x77, u64::MAX, i64::MIN),
        entry(TraceAction::FreeCompleted, 0x1800, u64::MAX, i64::MAX),
        entry(TraceAction::Alloc, u64::MAX, u64::MAX, 0),
        entry(TraceAction::SegmentAlloc, u64::MAX, u64::MAX, 0),
        entry(TraceAction::SegmentUnmap, 5, 1, 0),
        entry(TraceAction::SegmentUnmap, u64::MAX - 1, u64::MAX, 0),
        entry(TraceAction::SegmentMap, u64::MAX - 1, u64::MAX, 0),
        entry(TraceAction::SegmentMap, 0x1000, 2 * MIB, 0),
    ]);
    let profile = Profile::of_snapshot("run", &snapshot, 0);
    assert!(profile.moments.len() > 1);
    drop(crate::report::html(&profile));
    assert!(Profile::of_snapshot("run", &MemorySnapshot::default(), 7).samples.is_empty());
}
