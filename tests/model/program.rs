//! Random programs.

use accelerator_core::MIB;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::settings::{Roundup, Settings};

pub(crate) const STREAMS: u32 = 4;

/// A step of a program. An allocation is chosen by a number modulo the number of live ones.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Allocate { bytes: u64, stream: u32 },
    Free { nth: usize },
    RecordUse { nth: usize, stream: u32 },
    Hold(u32),
    Release(u32),
    Synchronize(u32),
    SynchronizeAll,
    EmptyCache,
    ResetPeaks,
    ResetAccumulated,
    Configure(Settings),
    SetFraction(f64),
    FailAllocs(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) capacity: u64,
    pub(crate) ops: Vec<Op>,
}

/// Programs without expandable segments.
pub(crate) fn programs(length: usize) -> impl Strategy<Value = Program> {
    any_programs(length, false)
}

/// Programs that start with a setting for expandable segments, and switch them on and off.
pub(crate) fn expandable_programs(length: usize) -> impl Strategy<Value = Program> {
    let switch = any::<bool>().prop_map(|on| Settings { expandable: Some(on), ..Settings::default() });
    (any_programs(length, true), vec((0..length, switch), 1..4)).prop_map(|(mut program, switches)| {
        let on = Settings { expandable: Some(true), ..Settings::default() };
        program.ops.insert(0, Op::Configure(on));
        for (place, switch) in switches {
            let place = 1 + place % program.ops.len();
            program.ops.insert(place, Op::Configure(switch));
        }
        program
    })
}

/// Random programs. `expandable`: whether their settings include expandable segments.
fn any_programs(length: usize, expandable: bool) -> impl Strategy<Value = Program> {
    let capacity =
        prop_oneof![Just(26 * MIB), Just(64 * MIB), Just(300 * MIB + 512), Just(2048 * MIB), (40 * MIB..600 * MIB)];
    (capacity, vec(op(expandable), length / 2..length * 3 / 2)).prop_map(|(capacity, ops)| Program { capacity, ops })
}

fn op(expandable: bool) -> impl Strategy<Value = Op> {
    let stream = || 0..STREAMS;
    prop_oneof![
        40 => (bytes(), stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        30 => any::<usize>().prop_map(|nth| Op::Free { nth }),
        20 => (any::<usize>(), stream()).prop_map(|(nth, stream)| Op::RecordUse { nth, stream }),
        5 => stream().prop_map(Op::Hold),
        4 => stream().prop_map(Op::Release),
        1 => stream().prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeAll),
        2 => Just(Op::EmptyCache),
        1 => Just(Op::ResetPeaks),
        1 => Just(Op::ResetAccumulated),
        4 => settings(expandable).prop_map(Op::Configure),
        2 => prop_oneof![1 => Just(0.0), 1 => Just(0.3), 3 => 0.5..1.0, 4 => Just(1.0)].prop_map(Op::SetFraction),
        1 => (1_u64..3).prop_map(Op::FailAllocs),
    ]
}

fn bytes() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(512),
        Just(1024),
        Just(MIB),
        Just(2 * MIB),
        Just(10 * MIB),
        Just(20 * MIB),
        Just(32 * MIB),
        Just(64 * MIB)
    ];
    prop_oneof![
        20 => 1_u64..8192,
        20 => (edge, 0_u64..=2).prop_map(|(edge, above)| edge - 1 + above),
        20 => 1..=MIB,
        20 => MIB..10 * MIB,
        // Few distinct sizes, so that free blocks of the same size compete.
        20 => prop::sample::select(vec![512, 300_000, 700_000, 3 * MIB, 7 * MIB]),
        10 => 10 * MIB..=200 * MIB,
        10 => (5_u64..50).prop_map(|count| count * 2 * MIB),
        1 => prop_oneof![Just((1 << 60) - 1), Just(1 << 60), Just(u64::MAX)],
    ]
}

fn settings(expandable: bool) -> impl Strategy<Value = Settings> {
    let mebibytes = || option::of(prop_oneof![4 => Just(20_u64), 1 => Just(12), 2 => 20_u64..100]);
    (
        mebibytes(),
        mebibytes(),
        option::of(0_u8..100),
        option::of(roundup()),
        option::of(prop_oneof![3 => Just(20_u64), 1 => Just(10), 2 => 11_u64..40]),
        option::weighted(0.1, 50_u8..100),
        option::weighted(0.3, any::<bool>()),
        option::weighted(0.6, prop::bool::weighted(0.8)),
        (
            option::weighted(0.3, prop::bool::weighted(0.7)),
            option::weighted(0.4, any::<bool>()).prop_map(move |on| on.filter(|_| expandable)),
        ),
    )
        .prop_map(|(split, rounding, garbage, roundup, large, memory, throw, reuse, rest)| Settings {
            max_split_mb: split,
            max_non_split_rounding_mb: rounding,
            garbage_collection_percent: garbage,
            roundup,
            large_segment_mb: large,
            memory_percent: memory,
            throw_on_oom: throw,
            device_side_reuse: reuse,
            caching: rest.0,
            expandable: rest.1,
            compact: None,
        })
}

fn roundup() -> impl Strategy<Value = Roundup> {
    let divisions = || (0_u32..5).prop_map(|power| 1_u64 << power);
    let entries = prop::collection::btree_map((0_u32..9).prop_map(|power| 1_u64 << power), divisions(), 1..4);
    prop_oneof![
        divisions().prop_map(Roundup::Number),
        (entries, option::of(divisions()))
            .prop_map(|(entries, above)| Roundup::Table { entries: entries.into_iter().collect(), above }),
    ]
}
