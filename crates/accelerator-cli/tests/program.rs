//! Runs `accel` as a user does, and checks its output and exit status.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at anything unexpected")]

#[path = "program/accel.rs"]
mod accel;
#[path = "program/bench.rs"]
mod bench;
#[path = "program/compare.rs"]
mod compare;
#[path = "program/convert.rs"]
mod convert;
#[path = "program/escapes.rs"]
mod escapes;
#[path = "program/limits.rs"]
mod limits;
#[path = "program/opencl.rs"]
mod opencl;
#[cfg(unix)]
#[path = "program/outputs.rs"]
mod outputs;
#[path = "program/pauses.rs"]
mod pauses;
#[path = "program/pools.rs"]
mod pools;
#[path = "program/report.rs"]
mod report;
#[cfg(unix)]
#[path = "program/signals.rs"]
mod signals;
#[cfg(target_os = "linux")]
#[path = "program/streams.rs"]
mod streams;
#[path = "program/timing.rs"]
mod timing;
#[path = "program/tracker.rs"]
mod tracker;
#[path = "program/verify.rs"]
mod verify;
#[path = "program/xpu.rs"]
mod xpu;

use std::io::Write;
use std::process::Stdio;

use accel::{Ended, accel, file, run, run_with_input};
use accelerator_cli::replay::{Replayer, Summary};
use accelerator_cli::trace::BUNDLED;
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};

#[test]
fn wrong_usage_ends_with_2() {
    run(&[]).fails(2, "Usage: accel");
    run(&["fly"]).fails(2, "unrecognized subcommand 'fly'");
    run(&["replay", "--backend", "abacus"]).fails(2, "possible values: cuda, xpu, opencl, vulkan, host, sim");
    run(&["replay", "--capacity", "apples"]).fails(2, "expected a size, such as 16GiB");
    run(&["replay", "--placements"]).fails(2, "--plain");
    run(&["replay", "--conf", "foo:1"]).fails(2, "unknown key `foo`: expected one of max_split_size_mb");
    run(&["replay", "--conf", "expandable_segments:true"])
        .fails(2, "`expandable_segments` must be `True` or `False`, not `true`");
    run(&["replay", "--conf", "pinned_max_cached_size_mb:x"])
        .fails(2, "`pinned_max_cached_size_mb` must be a whole number, not `x`");
    run(&["replay", "--conf", "backend:mine"])
        .fails(2, "`backend` must be `native` or `cudaMallocAsync` or `hipMallocAsync`, not `mine`");
}

#[test]
fn a_setting_without_effect_causes_a_warning() {
    let ended = run(&["replay", "--plain", "--conf", "backend:native,release_lock_on_cudamalloc:True"]);
    let warning = |key| {
        format!("accel: warning: the allocator setting `{key}` has no effect: only PyTorch's CUDA allocator uses it")
    };
    let expected = ["backend", "release_lock_on_cudamalloc"].map(warning);
    assert_eq!(ended.error.lines().collect::<Vec<_>>(), expected);
    assert_eq!(ended.out, run(&["replay", "--plain"]).out);
}

#[test]
fn a_failed_run_ends_with_1_and_says_where() {
    run(&["replay", "/no/such/trace"]).fails(1, "/no/such/trace: No such file");
    for (input, message) in [
        ("alloc 1 5 0\nallok 2\n", "standard input:2: expected an operation, but found `allok`"),
        ("alloc 1 5\n", "standard input:1: expected the number of a stream, but the line ends"),
        ("alloc 1 5 0\nalloc 1 5 0\n", "standard input:2: allocation 1 is already live"),
        ("\nfree 9\n", "standard input:2: allocation 9 is not live"),
        ("alloc 1 5 0\nfree 1\nfree 1\n", "standard input:3: allocation 1 is not live"),
        ("record 3 1\n", "standard input:1: allocation 3 is not live"),
        ("stats\nfraction 1.5\n", "standard input:2: the memory fraction must be between 0 and 1, but is 1.5"),
        ("stats\nfraction NaN\n", "standard input:2: the memory fraction must be between 0 and 1, but is NaN"),
        ("conf max_split_size_mb:5\n", "standard input:1: allocator settings `max_split_size_mb:5`"),
    ] {
        for extra in [&["--plain"][..], &[], &["--time"]] {
            run_with_input(&[&["replay", "-"], extra].concat(), input.as_bytes()).fails(1, message);
        }
    }
}

#[test]
fn output_before_a_failure_is_printed() {
    let ended = run_with_input(&["replay", "--plain", "-"], b"alloc 7 0 0\nfree 9\n");
    ended.fails(1, "allocation 9 is not live");
    assert_eq!(ended.out, "null 7\n");
}

#[test]
fn a_truncated_or_foreign_file_is_reported() {
    let whole = BUNDLED[0].file;
    let zst = file("truncated.trace.zst", &whole[..whole.len() / 2]);
    run(&["replay", zst.to_str().unwrap()]).fails(1, "truncated or damaged");
    let gzip = file("truncated.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b]);
    run(&["replay", "--plain", gzip.to_str().unwrap()]).fails(1, "truncated or damaged");
    let foreign = file("foreign", &[0x7f, b'E', b'L', b'F', 2, 1, 0xff, 0xfe, b'\n']);
    run(&["replay", foreign.to_str().unwrap()]).fails(1, "foreign:1: expected an operation");
}

#[test]
fn compressed_files_are_read_to_their_end() {
    // `alloc 1 0 0` and `alloc 2 0 0`, each compressed on its own.
    let gzip: [&[u8]; 2] = [
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\xcc\xc9\xc9OV0T0P0\xe0\x02\x00\x18L&\xb2\x0c\x00\x00\x00",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\xcc\xc9\xc9OV0R0P0\xe0\x02\x00\xb6>\xb24\x0c\x00\x00\x00",
    ];
    let zstd: [&[u8]; 2] = [
        b"(\xb5/\xfd\x04Xa\x00\x00alloc 1 0 0\x0a\xc6N\xea\xeb",
        b"(\xb5/\xfd\x04Xa\x00\x00alloc 2 0 0\x0a\x09\xa1S\x9e",
    ];
    for parts in [gzip, zstd] {
        let ended = run_with_input(&["replay", "--plain", "-"], &parts.concat());
        assert_eq!(ended.out, "null 1\nnull 2\n", "{}", ended.error);
        run_with_input(&["replay", "--plain", "-"], &[parts[0], &parts[1][..8]].concat())
            .fails(1, "truncated or damaged");
    }
}

#[test]
fn a_filter_that_matches_no_case_is_a_failure() {
    run(&["conformance", "--backend", "sim", "B99"]).fails(1, "no case name contains `B99`");
    assert!(run(&["conformance", "--backend", "sim", "B24"]).out.contains("B24_best_fit_and_its_ties"));
}

#[test]
fn settings_of_the_environment_count_and_are_checked() {
    let trace = b"alloc 1 5000000 0\nsnapshot\n";
    let replay = |name: &str, value: &str| {
        let mut command = accel(&["replay", "--plain", "-"]);
        command.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Refused settings end the program before it reads the trace.
        let _ = child.stdin.take().unwrap().write_all(trace);
        Ended::of(child.wait_with_output().unwrap())
    };
    for name in ["ACCELERATOR_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        assert!(replay(name, "large_segment_size_mb:32").out.contains("size 33554432"));
        replay(name, "max_split_size_mb").fails(1, "expected `:` and a value after `max_split_size_mb`");
    }
}

#[test]
fn plain_output_is_that_of_the_format() {
    let trace = "capacity 4194304\nalloc 1 1000 0\nalloc 2 0 0\nalloc 3 9000000 3\nfree 3\nsnapshot\nmeminfo\n";
    let ended = run_with_input(&["replay", "--plain", "--placements", "--time-calls", "-"], trace.as_bytes());
    assert_eq!(ended.status, Some(0));
    let expected = "at 1 0x0\nnull 2\noom 3\n@6 snapshot\n\
        segment 0 at 0x0 size 2097152 stream 0 pool small allocated 1024 active 1024 requested 1000 blocks 2 counter 0\n  \
        block +0 size 1024 requested 1000 active_allocated\n  block +1024 size 2096128 requested 0 inactive\nend\n\
        @7 meminfo free 2097152 total 4194304\n";
    assert_eq!(ended.out, expected);
    assert!(ended.error.starts_with("time_ns ") && ended.error.ends_with(" ops 3\n"), "{}", ended.error);
}

#[test]
fn expandable_segments_are_reported() {
    let trace = b"alloc 1 1000 0\nalloc 2 30000000 0\nfree 2\nconf expandable_segments:False\nsnapshot\n";
    let arguments = ["replay", "-", "--backend", "sim", "--conf", "expandable_segments:True"];
    let ended = run_with_input(&[&arguments[..], &["--plain"]].concat(), trace);
    let expected = "@5 snapshot\n\
        segment 0 at 0x400000000000 size 2097152 stream 0 pool small expandable allocated 1024 active 1024 requested 1000 \
        blocks 2 counter 0\n  \
        block +0 size 1024 requested 1000 active_allocated\n  block +1024 size 2096128 requested 0 inactive\n\
        segment 1 at 0x400480000000 size 41943040 stream 0 pool large expandable allocated 0 active 0 requested 0 blocks 1 \
        counter 1\n  \
        block +0 size 41943040 requested 30000000 inactive\nend\n";
    assert_eq!(ended.out, expected, "{}", ended.error);
    // The summary reports them although they were switched off at the end.
    let row = |text: &str| text.lines().find(|line| line.contains("expandable segments ")).map(str::to_owned);
    assert!(row(&run_with_input(&arguments, trace).out).unwrap().trim_end().ends_with("in use"));
    assert_eq!(row(&run_with_input(&arguments[..4], b"alloc 1 1000 0\n").out), None);

    let config = AllocatorConfig::default().updated("expandable_segments:True").unwrap();
    let device = Sim::new(1 << 30).without_virtual_memory();
    let replayer = Replayer::new(Accelerator::new(device, 0, config).unwrap(), false);
    let none = row(&Summary::default().of("a trace", &replayer)).unwrap();
    assert!(none.contains("none: no virtual memory"), "{none}");
}

#[test]
fn the_bundled_trace_replays_on_the_host() {
    let ended = run(&["replay"]);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    for part in ["Memory summary of host:0", "peak requested", "7.00 GiB", "94.9 %", "131 + 0", "19,178"] {
        assert!(ended.out.contains(part), "expected `{part}` in:\n{}", ended.out);
    }
}

#[test]
fn host_and_simulation_agree() {
    let trace = file(
        "agree.trace",
        b"hold 1\nalloc 1 7000000 0\nrecord 1 1\nfree 1\nalloc 2 7000000 0\nstats\nrelease 1\n\
        alloc 3 7000000 0\nfree 2\nfree 3\nfail_mallocs 2\nalloc 4 99000000 2\nstats\nempty_cache\nstats\n",
    );
    let replay = |backend| run(&["replay", "--plain", "--backend", backend, trace.to_str().unwrap()]);
    let (host, sim) = (replay("host"), replay("sim"));
    assert_eq!(host.status, Some(0), "{}", host.error);
    assert!(sim.out.contains("oom 4\n"));
    assert!(host.out == sim.out, "the outputs differ");
}

#[test]
fn info_shows_devices_or_why_there_are_none() {
    let info = |devices, arguments: &[&str]| {
        Ended::of(accel(arguments).env("ACCELERATOR_HOST_DEVICES", devices).output().unwrap())
    };
    assert!(info("2", &["info"]).out.contains("host:1"));
    let none = "host is not available: ACCELERATOR_HOST_DEVICES is 0\n";
    assert!(info("0", &["info"]).out.ends_with(none));
    assert_eq!(info("0", &["info", "--backend", "host"]).out, none);
    assert!(info("x", &["info"]).out.contains("must be a number of devices up to 128, but is \"x\""));
}
