//! `replay --time` and `replay --time-calls`.

use accelerator_cli::replay::{PlainOutput, Program, Replayer};
use accelerator_cli::trace::{BUNDLED, Line, Source};
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};

use crate::accel::{run, run_with_input};
use crate::pools;

/// Eleven allocator operations, and lines of most other kinds. Numbers are used again, and three allocations stay.
const TRACE: &str = "alloc 1 1000 0\nalloc 2 0 0\nfree 2\nhold 1\nalloc 3 7000000 0\nrecord 3 1\nfree 3\n\
                     alloc 3 7000000 0\nstats\nrelease 1\nalloc 4 7000000 2\nfree 4\nreset_peak\nempty_cache\n\
                     alloc 5 99000000000000 0\nrecord 5 1\nfree 5\nfail_mallocs 2\nalloc 2 30000000 0\nsnapshot\n\
                     pool_create 1\npool_begin 1\nalloc 6 3000000 0\npool_end 1\npool_live 1 6\n";

fn lines(text: impl Into<Vec<u8>>) -> Vec<Line> {
    Source::from_bytes("a trace", text).unwrap().map(Result::unwrap).collect()
}

/// Replays a trace, and returns the number of its operations and all that can be seen of the state at its end.
fn replayed(replay: impl FnOnce(&mut Replayer<Sim>)) -> (u64, String) {
    let device = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).unwrap();
    let mut replayer = Replayer::new(device, false);
    replay(&mut replayer);
    let (operations, _) = replayer.operations();
    let mut state = PlainOutput::new(Vec::new(), false);
    for line in lines("stats\nsnapshot\nmeminfo\ncalls\npool_live 1 6\n") {
        state.write(line.number, &replayer.step(&line).unwrap()).unwrap();
    }
    replayer.end().unwrap();
    (operations, String::from_utf8(state.finish().unwrap()).unwrap())
}

#[test]
fn a_loop_does_what_a_replay_by_lines_does() {
    let recorded = BUNDLED.map(|trace| trace.file);
    for trace in [&[TRACE.as_bytes(), pools::TRACE.as_bytes()], &recorded[..]].concat() {
        let by_lines = replayed(|replayer| lines(trace).iter().for_each(|line| _ = replayer.step(line).unwrap()));
        let looped = replayed(|replayer| {
            replayer.run(&Program::new(lines(trace)).unwrap(), |_| {}).unwrap();
        });
        assert!(looped == by_lines, "{looped:?}\nin place of\n{by_lines:?}");
    }
}

#[test]
fn a_loop_prints_its_time_and_the_summary() {
    let summary = |extra: &[&str], trace: &[u8]| {
        let ended = run_with_input(&[&["replay", "-", "--backend", "sim"], extra].concat(), trace);
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        let lines = ended.out.lines().filter(|line| !line.contains("host time per operation"));
        (lines.map(str::to_owned).collect::<Vec<_>>(), ended.error)
    };
    for (trace, operations) in [(TRACE.as_bytes(), 11), (b"", 0), (b"conf max_split_size_mb:64\nstats\n", 0)] {
        let (expected, _) = summary(&[], trace);
        for (option, name) in [("--time", "loop_ns"), ("--time-calls", "time_ns")] {
            let (lines, error) = summary(&[option], trace);
            assert_eq!(lines, expected, "{option}");
            let ns = error.strip_prefix(name).and_then(|rest| rest.strip_suffix(&format!(" ops {operations}\n")));
            assert!(ns.is_some_and(|ns| ns.trim_start().parse::<u64>().is_ok()), "{error}");
        }
    }
}

#[test]
fn what_a_loop_cannot_do_is_refused() {
    for (extra, other) in [
        (&["--plain"][..], "--plain"),
        (&["--placements"], "--placements"),
        (&["--time-calls"], "--time-calls"),
        (&["--snapshot", "a.pickle"], "--snapshot <FILE>"),
        (&["--markdown"], "--markdown"),
    ] {
        let message = format!("the argument '--time' cannot be used with '{other}'");
        run(&[&["replay", "--time"], extra].concat()).fails(2, &message);
    }
}

#[test]
fn a_loop_begins_only_if_the_trace_is_right() {
    // The first line alone would end with another message.
    let trace = b"pool_end 1\nalloc 1 5 0\nfree 1\nfree 1\n";
    let looped = |trace| run_with_input(&["replay", "--time", "-"], trace);
    looped(trace).fails(1, "standard input:4: allocation 1 is not live");
    looped(&trace[..11]).fails(1, "standard input:1: no requests are sent to pool 1");
}
