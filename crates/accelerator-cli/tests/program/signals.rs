//! Files that remain when a signal ends `accel`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_tracker::tracker::{MemoryUse, OperatorStats, TrackerStats};
use libc::{SIG_DFL, SIGHUP, SIGINT, SIGKILL, SIGTERM, c_int};

use crate::accel::{accel, empty_folder, of_pytorch};

const SNAPSHOT: &str = "tiny_transformer.snapshot.pickle";

fn start(arguments: &[&str], temporary: &Path) -> Child {
    let mut command = accel(arguments);
    // Background jobs of a script ignore some signals, and their children inherit that.
    let by_default = || {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // SAFETY: The default action installs no handler, so no code of ours runs in a signal context.
            unsafe { libc::signal(signal, SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: Between fork and exec it only makes system calls. It takes no lock and allocates nothing.
    unsafe { command.pre_exec(by_default) };
    command.env("TMPDIR", temporary).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(child: &Child, signal: c_int) {
    // SAFETY: The process is a child that has not been waited for, so the number still belongs to it.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

fn ended_by(mut child: Child, signal: c_int, after: Duration) -> ExitStatus {
    thread::sleep(after);
    send(&child, signal);
    child.wait().unwrap()
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A command with one output, in its own folder.
struct Job {
    folder: PathBuf,
    arguments: Vec<String>,
    output: PathBuf,
    /// The complete output.
    whole: Vec<u8>,
    /// The duration of a run.
    time: Duration,
}

impl Job {
    fn new(command: &str, output: &str, folder: &str) -> Self {
        let folder = empty_folder(folder);
        let output = folder.join(output);
        let input = of_pytorch(SNAPSHOT);
        let arguments = [command, &input, "-o", output.to_str().unwrap()].map(str::to_owned).to_vec();
        let mut job = Self { folder, arguments, output, whole: Vec::new(), time: Duration::ZERO };
        let started = Instant::now();
        assert!(job.start().wait().unwrap().success());
        job.time = started.elapsed();
        job.whole = fs::read(&job.output).unwrap();
        job
    }

    fn start(&self) -> Child {
        start(&self.arguments.iter().map(String::as_str).collect::<Vec<_>>(), &self.folder)
    }

    /// Sends the signal at `moments` moments, spread over the whole run. `old` is the previous content of the output.
    fn interrupt(&self, signal: c_int, moments: u32, old: Option<&[u8]>) {
        let mut ended_early = 0;
        for moment in 0..moments {
            match old {
                Some(old) => fs::write(&self.output, old).unwrap(),
                None => drop(fs::remove_file(&self.output)),
            }
            let status = ended_by(self.start(), signal, self.time * moment / moments);
            assert!(status.signal() == Some(signal) || status.success(), "{status}");
            ended_early += u32::from(!status.success());
            let mut left = names(&self.folder);
            left.remove(self.output.file_name().unwrap().to_str().unwrap());
            assert!(left.is_empty(), "{left:?} after signal {signal} at {moment} of {moments}");
            let content = fs::read(&self.output).ok();
            assert!(content.as_deref() == old || content.as_ref() == Some(&self.whole), "a part of a file");
        }
        assert!(ended_early > 0, "signal {signal} came too late each time");
    }
}

#[test]
fn an_interrupted_conversion_left_parts_of_its_output() {
    let job = Job::new("convert", "out.trace", "interrupted_conversion");
    for signal in [SIGINT, SIGTERM] {
        job.interrupt(signal, 6, None);
        job.interrupt(signal, 6, Some(b"stats\n"));
    }
    job.interrupt(SIGHUP, 3, Some(b"stats\n"));
}

#[test]
fn an_interrupted_report_left_parts_of_its_page() {
    let job = Job::new("report", "out.html", "interrupted_report");
    for signal in [SIGINT, SIGTERM] {
        job.interrupt(signal, 12, Some(b"old"));
    }
}

/// On Linux, temporary files have no name, so SIGKILL leaves nothing behind.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_conversion_left_parts_of_its_output() {
    Job::new("convert", "out.trace", "killed_conversion").interrupt(SIGKILL, 12, None);
}

#[test]
fn an_interrupted_verification_replaced_the_old_report() {
    let folder = empty_folder("interrupted_verification");
    let path = folder.join("report.md");
    fs::write(&path, "old").unwrap();
    let child =
        start(&["verify", "--backend", "sim", "--quick", "-o", path.to_str().unwrap()], &empty_folder("verify_tmp"));
    let status = ended_by(child, SIGINT, Duration::from_millis(300));
    assert_eq!(status.signal(), Some(SIGINT));
    assert_eq!(names(&folder), BTreeSet::from(["report.md".to_owned()]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn an_unpacked_copy_had_a_name_in_the_temporary_folder() {
    let [folder, temporary] = ["unpacked", "unpacked_tmp"].map(empty_folder);
    let memory = MemoryUse::default();
    let operator = |number| OperatorStats { name: format!("layers.{number}.mm"), time: None, memory };
    let stats = TrackerStats { operators: (0..20_000).map(operator).collect(), ..TrackerStats::default() };
    let plain = folder.join("run.jsonl");
    stats.save(&plain).unwrap();
    let packed = folder.join("run.jsonl.gz");
    let mut encoder = flate2::write::GzEncoder::new(fs::File::create(&packed).unwrap(), flate2::Compression::fast());
    encoder.write_all(&fs::read(&plain).unwrap()).unwrap();
    encoder.finish().unwrap();
    let (input, page) = (packed.to_str().unwrap(), folder.join("page.html"));
    let mut child = start(&["report", input, "-o", page.to_str().unwrap()], &temporary);
    while child.try_wait().unwrap().is_none() {
        assert_eq!(names(&temporary), BTreeSet::new());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
}

/// The file has a name only until the first part is written.
#[test]
fn an_interrupted_pause_left_its_file() {
    let [folder, temporary] = ["interrupted_pause", "interrupted_pause_tmp"].map(empty_folder);
    let turns = "pause 1 file\nresume 1\n".repeat(20);
    let trace = folder.join("turns.trace");
    fs::write(&trace, format!("pool_create 1 pausable\npool_begin 1\nalloc 1 2097152 0\n{turns}")).unwrap();
    let run = || start(&["replay", "--backend", "host", trace.to_str().unwrap()], &temporary);
    let started = Instant::now();
    assert!(run().wait().unwrap().success());
    let (time, mut ended_early) = (started.elapsed(), 0);
    for moment in 0..24 {
        let status = ended_by(run(), SIGTERM, time * moment / 24);
        ended_early += u32::from(status.signal() == Some(SIGTERM));
        assert_eq!(names(&temporary), BTreeSet::new(), "at {moment} of 24");
    }
    assert!(ended_early > 0, "the signal came too late each time");
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let bench = accel(&["bench", "stats", "--threads", "1", "--reps", "1", "--milliseconds", "600"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]).arg(bench.get_program()).args(bench.get_args());
    for signal in [SIGHUP, SIGINT] {
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let status = ended_by(child, signal, Duration::from_millis(300));
        assert!(status.success(), "{status}");
    }
}
