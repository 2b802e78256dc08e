//! Files of a tracker: written completely or not at all, and read back.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use accelerator_core::{GIB, MIB};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::{Feed, Marker, TrackerStats};
use tempfile::TempDir;

use crate::rig::{memory, run, sim, trials};

trials! {
    what_is_saved_is_loaded
    a_tracker_loads_what_another_saved
    any_name_and_number_comes_back
    the_format_is_as_documented
    later_versions_may_add_lines_and_fields
    a_file_is_replaced_and_nothing_is_left_beside_it
    a_link_stays_and_its_file_is_written
    what_is_no_file_is_written_to
    what_cannot_be_written_leaves_the_old_file
    a_kill_while_saving_leaves_a_whole_file
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn recorded() -> MemoryTracker {
    let sim = sim(GIB);
    let tracker = MemoryTracker::of(sim);
    tracker.start_monitor(Feed::Automatic).unwrap();
    tracker.forward_start();
    let kept: Vec<_> = (1..20).map(|n| sim.allocate(n * MIB, sim.default_stream()).unwrap()).collect();
    tracker.forward_backward_boundary();
    drop(kept);
    tracker.operator("backward");
    tracker.stop().unwrap();
    tracker
}

fn what_is_saved_is_loaded() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let tracker = recorded();
    tracker.save_stats(&path).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap(), tracker.stats());
}

fn a_tracker_loads_what_another_saved() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let saved = recorded();
    saved.save_stats(&path).unwrap();
    let other = recorded();
    other.load(&path).unwrap();
    assert_eq!(other.stats(), saved.stats());
    assert_eq!(other.summary(), saved.summary());
    assert!(other.load(folder.path().join("missing")).is_err());
    assert_eq!(other.stats(), saved.stats());
    other.start_monitor(Feed::Explicit).unwrap();
    assert_eq!(other.stats().operators, []);
}

fn any_name_and_number_comes_back() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let mut stats = run(None, &[("", 0), ("a\"\n{}\u{2028}\0", i64::MAX as u64), ("Σ.forward.mm_0", 1 << 60)]);
    stats.operators[1].memory = memory(i64::MAX as u64, 0, i64::MAX as u64);
    stats.operators[2].time = Some(Duration::from_nanos(u64::MAX));
    stats.markers = vec![Marker { name: "ende\r\n".into(), position: 3, time: None }];
    stats.num_alloc_retries = u64::MAX;
    stats.save(&path).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap(), stats);
    let nothing = TrackerStats::default();
    nothing.save(&path).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap(), nothing);
}

fn the_format_is_as_documented() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let mut stats = run(Some(5), &[("addmm_0", 7)]);
    stats.operators[0].time = Some(Duration::from_nanos(9));
    stats.markers = vec![Marker { name: "end".into(), position: 1, time: Some(Duration::from_nanos(11)) }];
    stats.device = Some("host:0".into());
    stats.save(&path).unwrap();
    let expected = r#"{"format":"accelerator-tracker","version":1,"device":"host:0","total_memory":null,"start":{"allocated":5,"active":5,"reserved":5}}
{"kind":"operator","name":"addmm_0","time_ns":9,"allocated":7,"active":7,"reserved":7}
{"kind":"marker","name":"end","position":1,"time_ns":11}
{"kind":"end","operators":1,"markers":1,"num_alloc_retries":0}
"#;
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

fn later_versions_may_add_lines_and_fields() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let text = r#"{"host":"a","version":1,"format":"accelerator-tracker","clock":{"start":1}}
{"kind":"kernel","name":7}
{"kind":"operator","reserved":3,"active":2,"allocated":1,"name":"a_0","frames":[[1,2],{}]}
{"kind":"end","operators":1,"markers":0,"num_alloc_retries":2,"seconds":1.5}"#;
    fs::write(&path, text).unwrap();
    let stats = TrackerStats::load(&path).unwrap();
    assert_eq!((stats.operators[0].memory, stats.num_alloc_retries), (memory(1, 2, 3), 2));
}

fn a_file_is_replaced_and_nothing_is_left_beside_it() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    fs::write(&path, "something else").unwrap();
    recorded().save_stats(&path).unwrap();
    assert!(TrackerStats::load(&path).is_ok());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
fn a_link_stays_and_its_file_is_written() {
    let folder = folder();
    let [target, link] = ["other/run.jsonl", "link"].map(|name| folder.path().join(name));
    fs::create_dir(folder.path().join("other")).unwrap();
    std::os::unix::fs::symlink("other/run.jsonl", &link).unwrap();
    // At first the link has no target.
    for stats in [run(None, &[("a_0", 1)]), run(None, &[("b_0", 2), ("c_0", 3)])] {
        stats.save(&link).unwrap();
        assert!(link.is_symlink());
        assert_eq!(TrackerStats::load(&target).unwrap(), stats);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[cfg(unix)]
fn what_is_no_file_is_written_to() {
    let folder = folder();
    let [pipe, file] = ["pipe", "file"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let stats = run(None, &[("a_0", 1)]);
    let read = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    stats.save(&pipe).unwrap();
    assert!(!pipe.is_file(), "the pipe is replaced, and its reader waits forever");
    fs::write(&file, read.join().unwrap()).unwrap();
    assert_eq!(TrackerStats::load(&file).unwrap(), stats);
}

fn what_cannot_be_written_leaves_the_old_file() {
    let folder = folder();
    let path = folder.path().join("missing/run.jsonl");
    let error = recorded().save_stats(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: cannot be written: ", path.display())), "{error}");
    let path = folder.path().join("taken");
    fs::create_dir(&path).unwrap();
    assert!(recorded().save_stats(&path).is_err(), "a folder is in its place");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

/// Names the file in a process that writes to it until it is killed.
const CHILD: &str = "ACCELERATOR_TRACKER_SAVES";

/// Alternately saves runs of two lengths, forever.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let path = env::var_os(CHILD)?;
    let names: Vec<String> = (0..20_000).map(|number| format!("layers.{number}.forward.addmm_{number}")).collect();
    let operators: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), MIB)).collect();
    let (long, short) = (run(None, &operators), run(None, &operators[..10_000]));
    for stats in [&long, &short].into_iter().cycle() {
        tell(SAVING)?;
        stats.save(Path::new(&path)).ok()?;
        tell(SAVED)?;
    }
    None
}

/// Printed by the child when it starts to save.
const SAVING: u8 = b'<';
const SAVED: u8 = b'>';

fn tell(what: u8) -> Option<()> {
    let mut out = io::stdout();
    out.write_all(&[what]).and_then(|()| out.flush()).ok()
}

fn a_kill_while_saving_leaves_a_whole_file() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let (mut in_the_middle, deadline) = (0, Instant::now() + Duration::from_secs(20));
    for pause in (0..60).map(|n| Duration::from_micros(n * 1700 % 25_000)) {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child = command.env(CHILD, &path).stdout(Stdio::piped()).spawn().unwrap();
        while !path.exists() {
            assert!(Instant::now() < deadline, "nothing is saved");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(5) + pause);
        child.kill().unwrap();
        let told = child.wait_with_output().unwrap().stdout;
        let saved = TrackerStats::load(&path).unwrap().operators.len();
        assert!([10_000, 20_000].contains(&saved), "{saved}");
        in_the_middle += u32::from(told.last() == Some(&SAVING));
        // On Linux, the temporary file has a name only while it replaces the other file.
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        for left in left.filter(|left| *left != path) {
            assert!(cfg!(not(target_os = "linux")) || TrackerStats::load(&left).is_ok(), "an incomplete file");
            fs::remove_file(left).unwrap();
        }
        if in_the_middle >= 5 {
            return;
        }
    }
    assert!(in_the_middle > 0, "no process was killed while saving: the trial proved nothing");
}
