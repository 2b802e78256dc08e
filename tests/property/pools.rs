//! Random programs on private pools, compared with a naive model: lists of routes, segments and live blocks. The model
//! learns of a segment when it appears in a snapshot, and then knows for which pool the driver gave it.

#[path = "pools/machine.rs"]
mod machine;
#[path = "pools/model.rs"]
mod model;

use accelerator_core::MIB;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use self::machine::Machine;
use super::check;

/// How many streams there are. The last one is the one that is captured.
const STREAMS: usize = 4;

/// Things are chosen by a number modulo the number of those that exist.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Allocate {
        bytes: u64,
        stream: usize,
    },
    Free(usize),
    RecordUse {
        nth: usize,
        stream: usize,
    },
    Hold(usize),
    Release(usize),
    Synchronize(usize),
    EmptyCache,
    FailAllocs(u64),
    NewPool {
        use_on_oom: bool,
        no_split: bool,
    },
    DropPool(usize),
    Trim(usize),
    EmptyPool(usize),
    Route {
        pool: usize,
        requests: Requests,
    },
    EndRoute(usize),
    Checkpoint(usize),
    Restore(usize),
    /// The pool: one of the program's or that of another graph, if there is one.
    BeginCapture(Option<usize>),
    EndCapture,
    Replay(usize),
    DropGraph(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Requests {
    All,
    Stream(usize),
    ThisThread,
    /// Those of streams with even numbers.
    Even,
}

#[derive(Clone, Debug)]
struct Program {
    capacity: u64,
    settings: &'static str,
    ops: Vec<Op>,
}

fn programs(length: usize) -> impl Strategy<Value = Program> {
    let settings = prop::sample::select(vec![
        "",
        "max_split_size_mb:20",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9",
        "device_side_reuse:True",
        "caching:False",
        "graph_capture_record_stream_reuse:True",
    ]);
    let capacity = prop_oneof![Just(64 * MIB), Just(150 * MIB), Just(2048 * MIB)];
    let ops = vec(op(), length / 2..length * 3 / 2);
    (capacity, settings, ops).prop_map(|(capacity, settings, ops)| Program { capacity, settings, ops })
}

fn op() -> impl Strategy<Value = Op> {
    let (stream, nth) = (|| 0..STREAMS, any::<usize>);
    let bytes = prop_oneof![
        3 => 1_u64..8192,
        2 => 1..=MIB,
        3 => prop::sample::select(vec![512, 700_000, 3 * MIB, 7 * MIB]),
        2 => MIB..10 * MIB,
        1 => 10 * MIB..60 * MIB,
    ];
    let requests = prop_oneof![
        Just(Requests::All),
        stream().prop_map(Requests::Stream),
        Just(Requests::ThisThread),
        Just(Requests::Even),
    ];
    prop_oneof![
        40 => (bytes, stream()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        25 => nth().prop_map(Op::Free),
        10 => (nth(), stream()).prop_map(|(nth, stream)| Op::RecordUse { nth, stream }),
        4 => stream().prop_map(Op::Hold),
        4 => stream().prop_map(Op::Release),
        1 => stream().prop_map(Op::Synchronize),
        2 => Just(Op::EmptyCache),
        1 => (1_u64..3).prop_map(Op::FailAllocs),
        4 => any::<(bool, bool)>().prop_map(|(use_on_oom, no_split)| Op::NewPool { use_on_oom, no_split }),
        2 => nth().prop_map(Op::DropPool),
        1 => nth().prop_map(Op::Trim),
        1 => nth().prop_map(Op::EmptyPool),
        8 => (nth(), requests).prop_map(|(pool, requests)| Op::Route { pool, requests }),
        7 => nth().prop_map(Op::EndRoute),
        3 => nth().prop_map(Op::Checkpoint),
        3 => nth().prop_map(Op::Restore),
        3 => option::of(nth()).prop_map(Op::BeginCapture),
        5 => Just(Op::EndCapture),
        1 => nth().prop_map(Op::Replay),
        2 => nth().prop_map(Op::DropGraph),
    ]
}

#[test]
fn private_pools_equal_the_model() {
    check(400, programs(120), |program| {
        let mut machine = Machine::new(program.capacity, program.settings);
        program.ops.iter().for_each(|op| machine.step(op));
        machine.finish();
    });
}
