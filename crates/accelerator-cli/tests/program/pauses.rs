//! Traces with pools that are paused and resumed.

use accelerator_cli::replay::Replayer;
use accelerator_cli::trace::{Line, parse_line};
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};

use crate::accel::{Ended, accel, empty_folder, file, run, run_with_input};

fn replayed(trace: &str, backend: &str) -> Ended {
    run_with_input(&["replay", "--plain", "--backend", backend, "-"], trace.as_bytes())
}

/// A pausable pool with one allocation, in four lines.
const POOL: &str = "pool_create 1 pausable\npool_begin 1\nalloc 1 31457280 0\npool_end 1\n";

/// Another one, of the same size.
const OTHER: &str = "pool_create 2 pausable\npool_begin 2\nalloc 2 31457280 0\npool_end 2\n";

#[test]
fn a_paused_pool_gives_its_memory_back() {
    let trace = |keep| format!("{POOL}meminfo\npause 1 {keep}\nmeminfo\nsnapshot\nresume 1\nmeminfo\nsnapshot 1\n");
    for (backend, keep) in [("sim", ""), ("sim", "file"), ("host", "nothing"), ("host", "host"), ("host", "file")] {
        let ended = replayed(&trace(keep), backend);
        assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""));
        let lines: Vec<_> = ended.out.lines().collect();
        let (there, away) = ("free 17148411904 total 17179869184", "free 17179869184 total 17179869184");
        assert_eq!([lines[0], lines[1]], [format!("@5 meminfo {there}"), format!("@7 meminfo {away}")]);
        assert!(lines[3].contains(" expandable private 0_1 paused allocated 31457280 "), "{}", lines[3]);
        assert_eq!(lines[6], format!("@10 meminfo {there}"));
        assert!(lines[8].contains(" expandable private 0_1 allocated 31457280 "), "{}", lines[8]);
    }
}

#[test]
fn a_resume_without_enough_memory_is_printed() {
    let trace = format!(
        "capacity 62914560\n{POOL}pause 1\n{OTHER}pause 2\nalloc 3 31457280 0\nresume 2 1\nresume 1\nfree 3\nresume 2\n"
    );
    for backend in ["sim", "host"] {
        let ended = replayed(&trace, backend);
        assert_eq!((ended.status, ended.out.as_str(), ended.error.as_str()), (Some(0), "oom resume 0_2 0_1\n", ""));
    }
    let summary = run_with_input(&["replay", "-"], trace.as_bytes()).out;
    for row in ["pauses of pools", "2: 60.00 MiB in ", "resumes of pools", "resumes out of memory"] {
        assert!(summary.contains(row), "expected `{row}` in:\n{summary}");
    }
    assert!(!run_with_input(&["replay", "-"], POOL.as_bytes()).out.contains("pauses"));
}

#[test]
fn a_wrong_line_says_what_to_do() {
    let paused = format!("{POOL}pause 1\n");
    let no_handle = "pool 1 cannot be paused or resumed: make it with `pool_create 1 pausable`";
    let is_paused = "sim:0: memory pool 0_1 is paused: resume it first";
    let exists = "pool 1 exists already, and only a new pool can be pausable: give it another number";
    let own_allocator = "pool 1 cannot be pausable with an allocator of its own: leave out `allocator` or `pausable`";
    for (trace, line, message) in [
        ("pause 1\n".to_owned(), 1, no_handle),
        ("pool_create 1\nresume 1\n".to_owned(), 2, no_handle),
        (format!("{paused}pool_release 1\nresume 1\n"), 7, no_handle),
        (format!("{POOL}pool_create 1 pausable\n"), 5, exists),
        ("pool_create 1\npool_create 1 pausable\n".to_owned(), 2, exists),
        ("pool_create 1 allocator pausable\n".to_owned(), 1, own_allocator),
        (format!("{paused}pause 1\n"), 6, "sim:0: memory pool 0_1 is paused already"),
        (format!("{POOL}resume 1\n"), 5, "sim:0: memory pool 0_1 is not paused"),
        (format!("{paused}resume 1 1\n"), 6, "sim:0: memory pool 0_1 is given twice"),
        (format!("{paused}pool_begin 1\nalloc 2 5 0\n"), 7, is_paused),
        (format!("{POOL}checkpoint 1 a\npause 1\nrestore 1 a\n"), 7, is_paused),
        (
            format!("{POOL}capture_begin 1 1\npause 1\n"),
            6,
            "sim:0: memory pool 0_1 cannot be paused while a graph is being captured",
        ),
    ] {
        replayed(&trace, "sim").fails(1, &format!("accel: standard input:{line}: {message}\n"));
    }
    let freed = replayed(&format!("{paused}free 1\nresume 1\nempty_cache\n"), "sim");
    assert_eq!((freed.status, freed.error.as_str()), (Some(0), ""), "frees work as always");
}

#[test]
fn a_device_without_virtual_memory_has_no_pausable_pools() {
    let device = Sim::new(1 << 30).without_virtual_memory();
    let mut replayer = Replayer::new(Accelerator::new(device, 0, AllocatorConfig::default()).unwrap(), false);
    let line = Line { number: 1, op: parse_line("pool_create 1 pausable").unwrap().unwrap() };
    let error = replayer.step(&line).unwrap_err().to_string();
    assert_eq!(error, "sim:0: memory pool 0_1 cannot be pausable: this device has no virtual memory");
}

#[test]
fn contents_of_more_than_the_limit_are_not_kept() {
    let trace = format!("{}pause 1 host\n", POOL.replace("31457280", "3000000000"));
    let message = "5: the contents of paused pools take more than 2.00 GiB: if you trust the file, add `--no-limits`";
    replayed(&trace, "host").fails(1, &format!("accel: standard input:{message}\n"));
    assert_eq!(replayed(&trace, "sim").status, Some(0), "it keeps nothing");
}

#[test]
fn a_replay_that_fails_leaves_no_file() {
    let folder = empty_folder("paused");
    let trace = file("paused.trace", format!("{POOL}pause 1 file\nfree 2\n").as_bytes());
    let arguments = ["replay", "--plain", "--backend", "host", trace.to_str().unwrap()];
    Ended::of(accel(&arguments).env("TMPDIR", &folder).output().unwrap()).fails(1, ":6: allocation 2 is not live");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let nowhere = Ended::of(accel(&arguments).env("TMPDIR", "/no/such/folder").output().unwrap());
    nowhere.fails(1, ":5: host:0: memory pool 0_1: /no/such/folder/.accelerator-");
}

#[test]
fn comparisons_pause_pools_where_the_device_can() {
    let in_turn = format!("{POOL}pause 1\n{OTHER}pause 2\nresume 1\n");
    let trace = file("in_turn.trace", in_turn.as_bytes());
    let trace = trace.to_str().unwrap();
    let ended = run(&["replay", "--compare", trace]);
    assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""));
    let has = |setting: &str, smallest: &str| {
        let row = ended.out.lines().find(|line| line.starts_with(setting)).unwrap();
        assert!(row.contains(smallest), "expected `{smallest}` in:\n{row}");
    };
    has("default", " 60.00 MiB 100.0 %      2 30.00 MiB 0.500 ");
    has("policy:compact, no mapping", " 60.00 MiB 100.0 %      2 60.00 MiB 1.000 ");
    for arguments in [&["advise", trace][..], &["replay", trace], &["report", trace, "-o", &format!("{trace}.html")]] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let refused = format!("{POOL}pause 1\nalloc 2 62914560 0\nresume 1\npool_begin 1\nalloc 3 5 0\n");
    let refused = file("refused.trace", refused.as_bytes());
    let ended = run(&["replay", "--compare", "--capacity", "60MiB", refused.to_str().unwrap()]);
    assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""));
    assert!(ended.out.lines().filter(|line| line.contains("over 60.00 MiB")).count() == 6, "{}", ended.out);
}
