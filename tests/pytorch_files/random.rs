//! Any snapshot is read back as it was written.

use std::sync::Arc;

use accelerator_tracker::snapshot::{
    Annotation, Block, BlockState, DeviceNotes, Frame, Frames, MemorySnapshot, Note, NoteKind, PoolKind, Segment,
    Setting, TraceAction, TraceEntry,
};
use libtest_mimic::{Failed, Trial};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::ages::read;
use crate::cases::check;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("random::what_is_written_is_read", round_trip)]
}

fn round_trip() -> Result<(), Failed> {
    check("random::what_is_written_is_read", 200, snapshot(), |snapshot| {
        let mut bytes = Vec::new();
        snapshot.write_to(&mut bytes).unwrap();
        assert_eq!(*snapshot, read(&bytes).unwrap());
    });
    Ok(())
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![Just(String::new()), "[a-z.]{1,9}", "\\PC{0,300}"].prop_map(Arc::from)
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..70_000u64, any::<u64>()]
}

fn frames() -> impl Strategy<Value = Frames> {
    let frame = (text(), text(), any::<u32>());
    let frame = frame.prop_map(|(name, filename, line)| Arc::new(Frame { name, filename, line }));
    vec(frame, 0..3).prop_map(Frames::from)
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        any::<bool>().prop_map(Setting::Flag),
        any::<i64>().prop_map(Setting::Integer),
        (-1e9..1e9f64).prop_map(Setting::Real),
        text().prop_map(Setting::Text),
        vec((text(), any::<i64>()), 0..4).prop_map(|lines| {
            Setting::Table(lines.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
        }),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let state = prop_oneof![
        Just(BlockState::Allocated),
        Just(BlockState::PendingFree),
        Just(BlockState::Inactive),
        Just(BlockState::Aliased)
    ];
    (size(), size(), size(), state, frames()).prop_map(|(address, size, requested_size, state, frames)| Block {
        address,
        size,
        requested_size,
        state,
        frames,
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    let sizes = (size(), size(), size(), size(), size(), size());
    let segment_type = prop_oneof![Just(PoolKind::Small), Just(PoolKind::Large)];
    let rest = (any::<u32>(), segment_type, (size(), size()), any::<[bool; 2]>(), frames(), vec(block(), 0..4));
    (sizes, rest).prop_map(|(sizes, (device, segment_type, pool_id, [is_expandable, is_paused], frames, blocks))| {
        let (address, total_size, allocated_size, active_size, requested_size, stream) = sizes;
        Segment {
            device,
            address,
            total_size,
            allocated_size,
            active_size,
            requested_size,
            stream,
            segment_type,
            pool_id,
            is_expandable,
            is_paused,
            frames,
            blocks,
        }
    })
}

fn entry() -> impl Strategy<Value = TraceEntry> {
    let action = prop_oneof![
        Just(TraceAction::Alloc),
        Just(TraceAction::FreeRequested),
        Just(TraceAction::FreeCompleted),
        Just(TraceAction::SegmentAlloc),
        Just(TraceAction::SegmentFree),
        Just(TraceAction::SegmentMap),
        Just(TraceAction::SegmentUnmap),
        Just(TraceAction::Snapshot),
        size().prop_map(|device_free| TraceAction::OutOfMemory { device_free }),
        Just(TraceAction::Other),
    ];
    let numbers = (size(), size(), size(), any::<i64>(), (size(), size()));
    (action, numbers, frames(), text(), text(), setting()).prop_map(
        |(action, (address, size, stream, time_us, pool_id), frames, user_metadata, compile_context, other)| {
            let word = (Arc::from("action"), Setting::Text("annotate".into()));
            let plain = !matches!(other, Setting::Table(_));
            let other = [(Arc::from("unheard_of"), other)].into_iter().filter(|_| plain);
            TraceEntry {
                action,
                address: if matches!(action, TraceAction::OutOfMemory { .. }) { 0 } else { address },
                size,
                stream,
                time_us,
                frames,
                pool_id,
                user_metadata,
                compile_context,
                other: [word].into_iter().filter(|_| action == TraceAction::Other).chain(other).collect(),
            }
        },
    )
}

fn notes() -> impl Strategy<Value = DeviceNotes> {
    let kind = prop_oneof![
        Just(NoteKind::CacheEmptied),
        Just(NoteKind::Refused),
        text().prop_map(|text| NoteKind::Settings(text.to_string())),
        (0.0..1f64).prop_map(NoteKind::MemoryFraction),
    ];
    let notes = vec((size(), kind).prop_map(|(before, kind)| Note { before, kind }), 0..4);
    let texts = (text(), text(), text());
    let pools = vec(((size(), size()), text().prop_map(|text| text.to_string())), 0..3);
    (any::<u32>(), texts, size(), 0.0..1f64, size(), vec(size(), 0..5), pools, notes).prop_map(
        |(device, (kind, name, settings), total_memory, memory_fraction, dropped, segment_order, pool_names, notes)| {
            DeviceNotes {
                device,
                kind: kind.to_string(),
                name: name.to_string(),
                total_memory,
                settings: settings.to_string(),
                memory_fraction,
                dropped,
                segment_order,
                pool_names,
                notes,
            }
        },
    )
}

fn snapshot() -> impl Strategy<Value = MemorySnapshot> {
    let annotation = (text(), text(), any::<u32>(), any::<i64>())
        .prop_map(|(stage, name, device, time_us)| Annotation { stage, name, device, time_us });
    let settings = vec((text().prop_map(|text| text.to_string()), setting()), 0..4);
    (
        vec(segment(), 0..5),
        vec(segment(), 0..3),
        vec(vec(entry(), 0..20), 0..4),
        settings,
        vec(annotation, 0..4),
        vec(notes(), 0..3),
    )
        .prop_map(|(segments, aliases, device_traces, settings, annotations, notes)| MemorySnapshot {
            segments,
            aliases,
            device_traces,
            settings,
            annotations,
            notes,
        })
}
