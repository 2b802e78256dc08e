//! Files that exceed limits are refused at once, with a hint at the option that lifts the limits.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::accel::{Ended, accel, file, run};

const MIB: usize = 1 << 20;
const OPTION: &str = ": if you trust the file, add `--no-limits`\n";

/// The size of the largest block in a zstd frame. Four bytes encode this many equal bytes.
const BLOCK: usize = 128 << 10;

/// Returns a zstd frame with the bytes `start`, followed by `blocks` blocks of the byte `of`. `window` is encoded as in
/// the format.
fn zstd(window: u8, start: &[u8], blocks: usize, of: u8) -> Vec<u8> {
    let block = |kind: u32, size: usize, last: bool| {
        let header = (size as u32) << 3 | kind << 1 | u32::from(last);
        header.to_le_bytes()[..3].to_vec()
    };
    let repeated = [block(1, BLOCK, false), vec![of]].concat().repeat(blocks);
    let frame = [b"(\xb5/\xfd\0", &[window][..], &block(0, start.len(), false), start, &repeated];
    [frame.concat(), block(0, 0, true)].concat()
}

/// The code for a window of 512 KiB.
const SMALL_WINDOW: u8 = 0x48;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Runs `accel` with at most 1 GiB of address space, and files of at most 16 MiB.
fn confined(arguments: &[&str]) -> Ended {
    let command = accel(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 1048576; ulimit -f 32768; exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Ended::of(shell.stdin(Stdio::null()).output().unwrap())
}

fn commands(path: &Path) -> [Vec<&str>; 4] {
    let path = path.to_str().unwrap();
    let report = vec!["report", path, "-o", "/no/such/folder/report.html"];
    [vec!["replay", path], vec!["replay", "--compare", path], vec!["advise", path], report]
}

#[test]
fn a_line_that_unpacks_to_gigabytes_filled_the_memory() {
    let zeros = file("zeros.zst", &zstd(SMALL_WINDOW, b"", 40_000, 0));
    for command in commands(&zeros) {
        let expected = format!("{}:1: the line is longer than 1048576 bytes{OPTION}", zeros.display());
        confined(&command).fails(1, &expected);
    }
    let zeros = file("zeros.gz", &gzip(&vec![0; 2 * MIB]));
    confined(&["replay", zeros.to_str().unwrap()]).fails(1, ":1: the line is longer than 1048576 bytes");
}

#[test]
fn a_file_that_is_not_a_snapshot_was_unpacked_to_its_end() {
    // The first bytes of a pickle, followed by 5 GB that are not part of a pickle.
    let pickle = file("zeros.pickle.zst", &zstd(SMALL_WINDOW, b"\x80\x04", 40_000, 0));
    for command in [&["convert"][..], &["replay"], &["advise"], &["report", "-o", "/no/such/folder/a.html"]] {
        let ended = confined(&[command, &[pickle.to_str().unwrap()]].concat());
        ended.fails(1, "zeros.pickle.zst: at byte 2: 0x00 is not a pickle opcode");
        assert!(!ended.error.contains("--no-limits"), "{}", ended.error);
    }
}

#[test]
fn a_window_of_gigabytes_has_its_own_message() {
    let far = file("far.zst", &zstd(0xa8, b"alloc 1 5 0\n", 0, 0));
    let far = far.to_str().unwrap();
    let expected =
        format!("{far}:1: decompressing it needs a window of 2.00 GiB, but at most 128.00 MiB is allowed{OPTION}");
    run(&["replay", far]).fails(1, &expected);
    let ended = run(&["replay", "--plain", "--no-limits", far]);
    assert_eq!((ended.status, &*ended.error), (Some(0), ""));
}

#[test]
fn without_limits_all_is_read() {
    let long = [b"# ", &vec![b'x'; 2 * MIB][..], b"\nalloc 1 0 0\n"].concat();
    let long = file("long.trace", &long);
    let long = long.to_str().unwrap();
    run(&["replay", "--plain", long]).fails(1, "long.trace:1: the line is longer than 1048576 bytes");
    let ended = run(&["replay", "--plain", "--no-limits", long]);
    assert_eq!((ended.status, &*ended.out), (Some(0), "null 1\n"), "{}", ended.error);
    for command in ["advise", "convert", "report", "tracker"] {
        assert!(run(&[command, "--help"]).out.contains("--no-limits"), "{command}");
    }
}

#[test]
fn a_trackers_line_without_end_is_reported_with_its_place() {
    let line = [b"{\"format\":\"", &vec![b'a'; 2 * MIB][..]].concat();
    let path = file("line.jsonl", &line);
    let packed = file("line.jsonl.gz", &gzip(&line));
    for (command, path) in
        [(&["tracker"][..], &path), (&["report", "-o", "a.html"], &path), (&["report", "-o", "a.html"], &packed)]
    {
        let told = format!("{}: at byte 0: line 1: the line is longer than 1048576 bytes{OPTION}", path.display());
        run(&[command, &[path.to_str().unwrap()]].concat()).fails(1, &told);
    }
    let told = "not a memory tracker's file";
    let cut = "the file is truncated in this line";
    let ended = run(&["tracker", "--no-limits", path.to_str().unwrap()]);
    assert!(ended.error.contains(told) || ended.error.contains(cut), "{}", ended.error);
}

#[test]
fn a_gzip_header_that_is_cut_off_was_an_empty_trace() {
    let cut = file("header.gz", b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name");
    let cut = cut.to_str().unwrap();
    for command in [&["replay", cut][..], &["convert", cut]] {
        run(command).fails(1, "header.gz: truncated or damaged");
    }
}

/// Pages for small blocks were filled with one allocation for each MiB, however many that took.
#[test]
fn pages_that_no_device_has_were_rebuilt_without_end() {
    let size = ((1_u64 << 60) + 1).to_le_bytes();
    let segment =
        [&b"}(\x8c\x07addressK\0\x8c\x0atotal_size\x8a\x08"[..], &size, b"\x8c\x0dis_expandable\x88u"].concat();
    let pickle = [&b"\x80\x04}(\x8c\x08segments]("[..], &segment, b"eu."].concat();
    let path = file("pages.pickle", &pickle);
    let refused =
        "the memory from before its history cannot be rebuilt: its contents take more than 2.00 GiB of memory";
    for command in ["convert", "replay"] {
        let expected = format!("{}: {refused}{OPTION}", path.display());
        confined(&[command, path.to_str().unwrap()]).fails(1, &expected);
    }
}
