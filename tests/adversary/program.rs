//! Random programs for the device that does its worst.

use accelerator_core::{Accelerator, AllocatorConfig, Backend, MIB, Stream};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) const STREAMS: usize = 4;

/// A step of a program. Things are chosen by a number modulo the number of those that exist.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Allocate {
        bytes: u64,
        stream: usize,
    },
    /// Drops a buffer. `poison` overwrites it first on its own stream, if all other work on it comes before.
    Free {
        nth: usize,
        poison: bool,
    },
    /// A kernel that writes. If the stream is not ordered after other work on the buffer, it waits for it first.
    Write {
        nth: usize,
        stream: usize,
        value: u8,
    },
    /// A copy from ordinary memory of the host to a part of the buffer.
    Load {
        nth: usize,
        part: usize,
        stream: usize,
        value: u8,
    },
    /// Compares the bytes with those of the model.
    Read {
        nth: usize,
        stream: usize,
    },
    /// A kernel that only reads, on a stream that waits for nothing. Nobody looks at what it reads.
    Touch {
        nth: usize,
        stream: usize,
    },
    Copy {
        from: usize,
        to: usize,
        stream: usize,
    },
    NewPinned {
        bytes: u64,
    },
    FreePinned(usize),
    ToPinned {
        nth: usize,
        pinned: usize,
        stream: usize,
    },
    FromPinned {
        nth: usize,
        pinned: usize,
        stream: usize,
        value: u8,
    },
    ReadPinned(usize),
    Order {
        earlier: usize,
        later: usize,
    },
    Record(usize),
    Wait {
        nth: usize,
        stream: usize,
    },
    Query(usize),
    Synchronize(usize),
    SynchronizeAll,
    EmptyCache,
    /// Compares statistics. Reading them also brings them up to date, so programs do not do it after each step.
    Count,
    ResetPeaks,
    Configure(&'static str),
    Fraction(f64),
    /// So many requests for memory fail.
    RefuseMemory(u64),
    NewPool {
        pausable: bool,
    },
    DropPool(usize),
    Route(usize),
    EndRoute,
    Trim(usize),
    Pause {
        nth: usize,
        keep: bool,
    },
    Resume(usize),
    /// Captures work on two streams that uses memory of the graph's own.
    Capture {
        stream: usize,
        side: usize,
        bytes: u64,
        joins: bool,
        value: u8,
    },
    Replay {
        nth: usize,
        stream: usize,
    },
    ResetGraph(usize),
}

/// A program: a device, its settings at the start, and steps.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) memory: u64,
    pub(crate) maps: bool,
    pub(crate) policy: &'static str,
    pub(crate) ops: Vec<Op>,
}

const POLICIES: [&str; 5] =
    ["", "expandable_segments:True", "policy:compact", "policy:compact", "policy:compact,expandable_segments:True"];

const SETTINGS: [&str; 11] = [
    "policy:compact",
    "policy:pytorch",
    "expandable_segments:True",
    "expandable_segments:False",
    "device_side_reuse:True",
    "device_side_reuse:False",
    "max_split_size_mb:21",
    "garbage_collection_threshold:0.5",
    "caching:False",
    "caching:True",
    "graph_capture_record_stream_reuse:True",
];

impl Program {
    /// Opens the device of the program, and makes its streams.
    pub(crate) fn open<B: Backend>(&self, backend: B) -> (&'static Accelerator<B>, Vec<Stream<B>>) {
        let config = AllocatorConfig::default().updated(self.policy).unwrap();
        let device = Accelerator::new(backend, 0, config).unwrap();
        let mut streams = vec![device.default_stream()];
        streams.extend((1..STREAMS).map(|_| device.stream(0).unwrap()));
        (device, streams)
    }
}

/// Chooses one of so many things.
pub(crate) fn chosen(nth: usize, of: usize) -> Option<usize> {
    nth.checked_rem(of)
}

/// Random programs.
pub(crate) fn programs(length: usize) -> impl Strategy<Value = Program> {
    let memory = || prop_oneof![Just(24 * MIB), Just(64 * MIB), Just(200 * MIB + 512), 20 * MIB..120 * MIB];
    let maps = prop_oneof![1 => Just(false), 9 => Just(true)];
    let mixed = (any::<u64>(), memory(), maps, select(&POLICIES[..]), vec(op(), 1..length * 2));
    let large = (any::<u64>(), memory(), Just(true), Just("policy:compact"), vec(large_op(), length * 2..length * 4));
    let parts = prop_oneof![3 => mixed, 1 => large];
    parts.prop_map(|(seed, memory, maps, policy, ops)| Program { seed, memory, maps, policy, ops })
}

/// Steps that fragment the memory, so that `policy:compact` maps it again and again at other addresses.
fn large_op() -> impl Strategy<Value = Op> {
    let (stream, nth) = (|| 0..STREAMS, || 0_usize..1000);
    let bytes = prop_oneof![3 => MIB..24 * MIB, 1 => (1_u64..12).prop_map(|pages| pages * 2 * MIB)];
    prop_oneof![
        40 => (bytes, stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        34 => (nth(), any::<bool>()).prop_map(|(nth, poison)| Op::Free { nth, poison }),
        10 => (nth(), stream()).prop_map(|(nth, stream)| Op::Touch { nth, stream }),
        8 => (nth(), stream(), 1_u8..=200).prop_map(|(nth, stream, value)| Op::Write { nth, stream, value }),
        2 => (nth(), stream()).prop_map(|(nth, stream)| Op::Read { nth, stream }),
        2 => (stream(), stream()).prop_map(|(earlier, later)| Op::Order { earlier, later }),
        2 => stream().prop_map(Op::Synchronize),
        1 => op(),
    ]
}

impl Op {
    /// Whether programs of several threads may have it: it changes nothing that they share.
    pub(crate) fn is_private(&self) -> bool {
        !matches!(self, Op::Count | Op::ResetPeaks | Op::RefuseMemory(_))
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (stream, nth) = (|| 0..STREAMS, || 0_usize..1000);
    let (value, bytes) = (1_u8..=200, || {
        prop_oneof![
            // Few distinct sizes, so that blocks are reused, and buffers can be copied to one another.
            8 => select(vec![512_u64, 4096, 40_000, 300_000]),
            3 => 1_u64..3000,
            4 => select(vec![MIB, 3 * MIB, 4 * MIB, 6 * MIB]),
            2 => MIB..9 * MIB,
            2 => (5_u64..14).prop_map(|pages| pages * 2 * MIB),
        ]
    });
    let memory = prop_oneof![
        60 => (bytes(), stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        45 => (nth(), any::<bool>()).prop_map(|(nth, poison)| Op::Free { nth, poison }),
        3 => Just(Op::EmptyCache),
        3 => Just(Op::Count),
        2 => Just(Op::ResetPeaks),
        4 => select(&SETTINGS[..]).prop_map(Op::Configure),
        1 => (0.3..1.0).prop_map(Op::Fraction),
        1 => Just(Op::Fraction(1.0)),
        1 => (1_u64..3).prop_map(Op::RefuseMemory),
    ];
    let work = prop_oneof![
        20 => (nth(), stream(), value.clone()).prop_map(|(nth, stream, value)| Op::Write { nth, stream, value }),
        2 => (nth(), nth(), stream(), value.clone())
            .prop_map(|(nth, part, stream, value)| Op::Load { nth, part, stream, value }),
        5 => (nth(), stream()).prop_map(|(nth, stream)| Op::Read { nth, stream }),
        20 => (nth(), stream()).prop_map(|(nth, stream)| Op::Touch { nth, stream }),
        5 => (nth(), nth(), stream()).prop_map(|(from, to, stream)| Op::Copy { from, to, stream }),
        2 => (1_u64..9000).prop_map(|bytes| Op::NewPinned { bytes }),
        2 => nth().prop_map(Op::FreePinned),
        3 => (nth(), nth(), stream()).prop_map(|(nth, pinned, stream)| Op::ToPinned { nth, pinned, stream }),
        3 => (nth(), nth(), stream(), value.clone())
            .prop_map(|(nth, pinned, stream, value)| Op::FromPinned { nth, pinned, stream, value }),
        1 => nth().prop_map(Op::ReadPinned),
    ];
    let order = prop_oneof![
        4 => (stream(), stream()).prop_map(|(earlier, later)| Op::Order { earlier, later }),
        3 => stream().prop_map(Op::Record),
        3 => (nth(), stream()).prop_map(|(nth, stream)| Op::Wait { nth, stream }),
        3 => nth().prop_map(Op::Query),
        2 => stream().prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeAll),
    ];
    let pools = prop_oneof![
        2 => any::<bool>().prop_map(|pausable| Op::NewPool { pausable }),
        1 => nth().prop_map(Op::DropPool),
        4 => nth().prop_map(Op::Route),
        4 => Just(Op::EndRoute),
        1 => nth().prop_map(Op::Trim),
        2 => (nth(), any::<bool>()).prop_map(|(nth, keep)| Op::Pause { nth, keep }),
        3 => nth().prop_map(Op::Resume),
        3 => (stream(), stream(), bytes(), any::<bool>(), value)
            .prop_map(|(stream, side, bytes, joins, value)| Op::Capture { stream, side, bytes, joins, value }),
        4 => (nth(), stream()).prop_map(|(nth, stream)| Op::Replay { nth, stream }),
        1 => nth().prop_map(Op::ResetGraph),
    ];
    prop_oneof![10 => memory, 6 => work, 2 => order, 2 => pools]
}
