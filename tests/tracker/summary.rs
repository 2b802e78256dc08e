//! The summary, in PyTorch's format.

use accelerator_core::{GIB, MIB};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::Feed;

use crate::rig::{run, sim, trials};

trials! {
    of_a_run
    has_twenty_operators_unless_told_otherwise
    the_first_operator_counts_where_the_start_is_known
    parts_of_one_name_are_added_up
    parts_that_add_up_to_too_much
    equal_parts_stay_in_order
    an_empty_tracker_says_so
    while_it_runs
}

fn of_a_run() {
    let stats = run(Some(0), &[("a_0", 16 * MIB), ("b_0", 16 * MIB + 1), ("c_0", 9 * MIB), ("d_0", 9 * MIB)]);
    let expected = "\
------------------------------------------------
The number of alloc retries are: 0
Top 20 ops that generates memory are:
a_0: 16.0MB
b_0: 9.5367431640625e-07MB
d_0: 0.0MB
c_0: -7.000000953674316MB
------------------------------------------------";
    assert_eq!(stats.summary().to_string(), expected);
    let top: Vec<_> = stats.summary_top(1).operators;
    assert_eq!(top, [("a_0".to_owned(), 16 << 20)]);
    assert!(stats.summary_top(1).to_string().contains("Top 1 ops"));
}

fn has_twenty_operators_unless_told_otherwise() {
    let names: Vec<String> = (0..25).map(|number| format!("a_{number}")).collect();
    let operators: Vec<_> = names.iter().zip(1..).map(|(name, mib)| (name.as_str(), mib * MIB)).collect();
    let stats = run(Some(0), &operators);
    assert_eq!(stats.summary().operators.len(), 20);
    assert!(stats.summary().to_string().contains("Top 20 ops"));
    assert_eq!(stats.summary_top(3).operators, stats.summary().operators[..3]);
    assert_eq!(stats.summary_top(99).operators.len(), 25);
}

fn the_first_operator_counts_where_the_start_is_known() {
    let operators = [("a", 5 * MIB), ("b", 6 * MIB)];
    let first = |start| run(start, &operators).summary_top(9).operators;
    assert_eq!(first(Some(2 * MIB)), [("a".to_owned(), 3 << 20), ("b".to_owned(), 1 << 20)]);
    assert_eq!(first(None), [("b".to_owned(), 1 << 20)]);
}

fn parts_of_one_name_are_added_up() {
    let stats = run(Some(0), &[("a", MIB), ("b", 2 * MIB), ("a", 6 * MIB), ("b", 5 * MIB)]);
    assert_eq!(stats.summary_top(9).operators, [("a".to_owned(), 5 << 20), ("b".to_owned(), 0)]);
}

/// A file may contain such amounts.
fn parts_that_add_up_to_too_much() {
    let most = i64::MAX as u64;
    let stats = run(Some(0), &[("a", most), ("b", 0), ("a", most), ("b", 0)]);
    let expected = [("a".to_owned(), i64::MAX), ("b".to_owned(), i64::MIN)];
    assert_eq!(stats.summary_top(9).operators, expected);
}

fn equal_parts_stay_in_order() {
    let stats = run(Some(0), &[("z", 1), ("m", 3), ("a", 4), ("k", 6), ("c", 7)]);
    let order: Vec<_> = stats.summary_top(9).operators.into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["m", "k", "z", "a", "c"]);
}

fn an_empty_tracker_says_so() {
    let expected = "\
------------------------------------------------
The number of alloc retries are: 0
No operators were recorded
------------------------------------------------";
    assert_eq!(MemoryTracker::of(sim(GIB)).summary().to_string(), expected);
}

fn while_it_runs() {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic).unwrap();
    let _a = sim.allocate(3 * MIB, sim.default_stream()).unwrap();
    assert_eq!(tracker.summary_top(5).operators, [("allocate_0".to_owned(), 3 << 20)]);
    let _b = sim.allocate(4 * MIB, sim.default_stream()).unwrap();
    assert_eq!(tracker.summary_top(1).operators, [("allocate_1".to_owned(), 4 << 20)]);
}
