//! `accel` with output that cannot be written.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use crate::accel::{Ended, accel, file, of_pytorch};

/// Returns arguments for a run of each command, and for runs whose messages are checked.
fn commands() -> Vec<Vec<String>> {
    let (snapshot, tracker) =
        (of_pytorch("tiny_transformer.snapshot.pickle"), of_pytorch("tiny_transformer.tracker.pickle"));
    let trace = file("streams.trace", b"alloc 1 104857600 0\nfree 1\nstats\n");
    let trace = trace.to_str().unwrap();
    let page = file("streams.html", b"");
    let page = page.to_str().unwrap();
    [
        &["--help"][..],
        &["--version"],
        &["replay", "--help"],
        &["info"],
        &["replay", trace],
        &["replay", "--plain", trace],
        &["replay", "--compare", trace],
        &["replay", "--compare", "--markdown", trace],
        &["advise", trace],
        &["convert", &snapshot],
        &["convert", &snapshot, "-o", "/dev/stdout"],
        &["report", trace, "-o", page],
        &["report", trace, "--perfetto", "/dev/stdout"],
        &["conformance", "--backend", "sim", "B1"],
        &["tracker", &tracker],
        &["bench", "stats", "--threads", "1", "--reps", "1", "--milliseconds", "1"],
        &["bench", "--count", "stats", "1"],
    ]
    .map(|arguments| arguments.iter().map(|&argument| argument.to_owned()).collect())
    .to_vec()
}

fn with_output(arguments: &[String], out: Stdio) -> Output {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    accel(&arguments).stdout(out).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_full_disk_went_unnoticed_or_ended_in_a_panic() {
    for arguments in commands() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = Ended::of(with_output(&arguments, full.into()));
        assert_eq!(ended.status, Some(1), "{arguments:?}: {}", ended.error);
        let message = ended.error.lines().last().unwrap_or_default();
        assert!(
            message.starts_with("accel: ")
                && message.contains(" cannot be written: No space left on device")
                && !ended.error.contains("panicked"),
            "{arguments:?}: {}",
            ended.error
        );
    }
}

#[test]
fn a_closed_pipe_ended_in_a_panic_or_in_success() {
    for arguments in commands() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = with_output(&arguments, writer.into());
        let error = String::from_utf8(ended.stderr).unwrap();
        // `cat` and `grep` end in the same way. A shell reports 141.
        assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{arguments:?}: {error}");
        assert!(error.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn a_full_disk_behind_standard_error_ended_in_a_panic() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (arguments, status) in [
        (&["replay", "/no/such/file"][..], 1),
        (&["fly"], 2),
        (&["convert", &of_pytorch("tiny_transformer.snapshot.pickle")], 0),
    ] {
        let ended = accel(arguments).stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{arguments:?}");
    }
    let usage = accel(&["fly"]).stdout(full()).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn standard_output_by_its_name_lost_what_was_in_it() {
    let path = file("appended.trace", b"# ahead\n");
    let out = File::options().append(true).open(&path).unwrap();
    let snapshot = of_pytorch("tiny_transformer.snapshot.pickle");
    let status = accel(&["convert", &snapshot, "-o", "/dev/stdout"]).stdout(out).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# ahead\n# device 0 of a snapshot"), "{text:.80}");
    assert!(text.lines().count() > 2000);
}

#[test]
fn messages_about_a_written_pipe_went_into_the_pipe() {
    let trace = file("perfetto.trace", b"alloc 1 5000 0\n");
    let events = accel(&["report", trace.to_str().unwrap(), "--perfetto", "/dev/stdout"]).output().unwrap();
    let events = Ended::of(events);
    assert!(events.out.starts_with('{') && events.out.ends_with("]}\n"), "{}", events.out);
}

#[test]
fn a_fifo_whose_reader_has_gone_causes_no_message() {
    let folder = crate::accel::empty_folder("fifo");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let snapshot = of_pytorch("tiny_transformer.snapshot.pickle");
    let child = accel(&["convert", &snapshot, "-o", pipe.to_str().unwrap()]).stderr(Stdio::piped()).spawn();
    drop(File::open(&pipe).unwrap());
    let ended = child.unwrap().wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{ended:?}");
    assert!(ended.stderr.is_empty());
}
