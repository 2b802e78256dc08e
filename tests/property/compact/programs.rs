//! Random programs that fragment memory, so that later requests must be assembled from pieces.

use accelerator_core::{KIB, MIB};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::model::program::{Op, Program, STREAMS};
use crate::model::settings::{Roundup, Settings};

/// The settings that a program may change besides the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// None, and not the policy either.
    Nothing,
    /// All settings that do not involve waits on the device.
    NoWaits,
    Everything,
}

/// Programs that switch the policy on in the first step.
pub(crate) fn programs(length: usize, beside: Beside) -> impl Strategy<Value = Program> {
    let capacity = prop_oneof![
        1 => Just(64 * MIB),
        1 => Just(300 * MIB + 512),
        2 => 500 * MIB..1500 * MIB,
        3 => Just(4096 * MIB),
    ];
    let ops = vec(op(beside), length / 2..length * 3 / 2);
    // Frees every other one of some blocks, so that the free memory is not contiguous.
    let blocks = vec(8 * MIB..60 * MIB, 0..12).prop_map(|blocks| {
        let frees = (0..blocks.len() / 2).map(|nth| Op::Free { nth });
        let blocks = blocks.iter().map(|bytes| Op::Allocate { bytes: *bytes, stream: 0 });
        blocks.chain(frees).collect::<Vec<_>>()
    });
    // Some programs repeat themselves, as most jobs do.
    (capacity, blocks, ops, any::<bool>()).prop_map(|(capacity, blocks, ops, again)| {
        let on = Op::Configure(Settings { compact: Some(true), ..Settings::default() });
        let second = if again { ops.clone() } else { Vec::new() };
        Program { capacity, ops: [vec![on], blocks, ops, second].concat() }
    })
}

fn op(beside: Beside) -> impl Strategy<Value = Op> {
    let stream = || prop_oneof![3 => Just(0_u32), 2 => 0..STREAMS];
    let fraction = prop_oneof![1 => Just(0.0), 1 => Just(0.3), 3 => 0.5..1.0, 4 => Just(1.0)];
    prop_oneof![
        45 => (bytes(), stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        36 => (0_usize..64).prop_map(|nth| Op::Free { nth }),
        8 => (0_usize..64, 0..STREAMS).prop_map(|(nth, stream)| Op::RecordUse { nth, stream }),
        4 => (0..STREAMS).prop_map(Op::Hold),
        4 => (0..STREAMS).prop_map(Op::Release),
        1 => (0..STREAMS).prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeAll),
        2 => Just(Op::EmptyCache),
        1 => Just(Op::ResetPeaks),
        1 => Just(Op::ResetAccumulated),
        1 => fraction.prop_map(Op::SetFraction),
        1 => (1_u64..3).prop_map(Op::FailAllocs),
        3 => settings(beside).prop_map(Op::Configure),
    ]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..=64 * KIB + 1,
        8 => 64 * KIB..2 * MIB,
        20 => MIB..20 * MIB,
        25 => 10 * MIB..=200 * MIB,
        10 => (5_u64..60).prop_map(|pages| pages * 2 * MIB),
        // Few distinct sizes, so that requests repeat.
        25 => prop::sample::select(vec![7 * MIB, 20 * MIB, 24 * MIB, 33 * MIB + 5, 50 * MIB, 90 * MIB]),
        1 => prop_oneof![Just((1 << 60) - 1), Just(1 << 60)],
    ]
}

fn settings(beside: Beside) -> impl Strategy<Value = Settings> {
    let divisions = (0_u32..5).prop_map(|power| Roundup::Number(1 << power));
    (
        option::weighted(0.6, prop::bool::weighted(0.8)),
        option::weighted(0.3, any::<bool>()),
        option::weighted(0.2, prop::bool::weighted(0.8)),
        option::weighted(0.1, any::<bool>()),
        option::weighted(0.1, 50_u8..100),
        option::weighted(0.2, any::<bool>()).prop_map(move |on| on.filter(|_| beside == Beside::Everything)),
        option::weighted(0.2, 1_u8..100),
        option::weighted(0.2, 20_u64..100),
        option::weighted(0.2, divisions),
    )
        .prop_map(|(compact, expandable, caching, throw, memory, reuse, garbage, split, roundup)| Settings {
            max_split_mb: split,
            garbage_collection_percent: garbage,
            roundup,
            memory_percent: memory,
            throw_on_oom: throw,
            device_side_reuse: reuse,
            caching,
            expandable,
            compact,
            ..Settings::default()
        })
        .prop_map(move |settings| if beside == Beside::Nothing { Settings::default() } else { settings })
}
