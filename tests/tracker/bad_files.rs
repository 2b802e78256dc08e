//! Invalid files. Each error names the place, and what the file seems to be.

use std::fs;

use accelerator_tracker::tracker::TrackerStats;

use crate::files::folder;
use crate::rig::{run, trials};

trials! {
    a_missing_file
    files_of_other_kinds
    a_file_that_is_cut_off_anywhere
    lines_that_are_wrong
    lists_and_numbers_were_read_as_lines_that_are_objects
    ignored_text_that_was_not_utf_8_was_read
    a_newer_version
    a_line_without_end
}

/// Returns why this is refused, without the file's name.
pub(crate) fn refused(bytes: &[u8]) -> String {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, bytes).unwrap();
    let error = TrackerStats::load(&path).unwrap_err().to_string();
    let name = format!("{}: ", path.display());
    error.strip_prefix(&name).unwrap_or_else(|| panic!("{error} does not name {name}")).to_owned()
}

fn a_missing_file() {
    let folder = folder();
    let error = TrackerStats::load(folder.path().join("nothing")).unwrap_err().to_string();
    assert!(error.contains("nothing: cannot be opened: No such file"), "{error}");
    let error = TrackerStats::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("cannot be read: Is a directory"), "{error}");
}

fn files_of_other_kinds() {
    for (bytes, message) in [
        (&b""[..], "at byte 0: not a memory tracker's file: it seems to be empty"),
        (
            b"PK\x03\x04abc",
            "at byte 0: not a memory tracker's file: it seems to be a zip archive, such as `torch.save` writes",
        ),
        (
            b"\x1f\x8b\x08",
            "at byte 0: not a memory tracker's file: it seems to be compressed with gzip: unpack it first",
        ),
        (
            b"<!DOCTYPE html>",
            "at byte 0: not a memory tracker's file: it seems to be a page or a picture, such as `accel report` \
             writes",
        ),
        (b"\xff\xff", "at byte 0: not a memory tracker's file: it is neither lines of JSON nor a pickle"),
        (b"alloc 1 2 3\n", "at byte 0: not a memory tracker's file: it is neither lines of JSON nor a pickle"),
    ] {
        assert_eq!(refused(bytes), message);
    }
    let other = "at byte 0: line 1: not a memory tracker's file: it does not start with \
                 {\"format\":\"accelerator-tracker\",…}";
    assert_eq!(refused(b"{\"traceEvents\":[]}\n"), other);
    assert_eq!(refused(b"{\"format\":\"another\",\"version\":1}\n"), other);
    assert_eq!(refused(b"{{{\n"), other);
}

fn saved() -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    run(Some(1), &[("a_0", 2), ("b_0", 3)]).save(&path).unwrap();
    fs::read(path).unwrap()
}

fn a_file_that_is_cut_off_anywhere() {
    let whole = saved();
    let lines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let [header, first, second, _end] = lines[..] else { panic!("{lines:?}") };
    let missing = "the file is truncated: the line that ends a run is missing";
    assert_eq!(refused(&whole[..header]), format!("at byte {header}: line 2: {missing}"));
    assert_eq!(refused(&whole[..second]), format!("at byte {second}: line 4: {missing}"));
    let within = "the file is truncated in this line";
    assert_eq!(refused(&whole[..first + 9]), format!("at byte {first}: line 3: {within}"));
    assert_eq!(refused(&whole[..second + 30]), format!("at byte {second}: line 4: {within}"));
    for end in 1..whole.len() - 1 {
        refused(&whole[..end]);
    }
}

fn lines_that_are_wrong() {
    let text = String::from_utf8(saved()).unwrap();
    let start = text.find("\"b_0\"").unwrap();
    let line = text[..start].rfind('\n').unwrap() + 1;
    let allocated = text.find("\"allocated\":3").unwrap() + "\"allocated\":3".len();
    let end = line + text[line..].replace("\"allocated\":3", "\"x\":3").find('}').unwrap();
    for (from, to, message) in [
        ("\"b_0\"", "b_0", format!("at byte {start}: line 3: expected value")),
        ("\"b_0\"", "7", format!("at byte {start}: line 3: invalid type: integer `7`, expected a string")),
        (
            "\"allocated\":3",
            "\"allocated\":-3",
            format!("at byte {allocated}: line 3: invalid value: integer `-3`, expected u64"),
        ),
        (
            "\"allocated\":3",
            "\"allocated\":9223372036854775808",
            format!("at byte {line}: line 3: an amount of memory is 2^63 bytes or more"),
        ),
        (
            "\"start\":{\"allocated\":1",
            "\"start\":{\"allocated\":18446744073709551615",
            "at byte 0: line 1: an amount of memory is 2^63 bytes or more".into(),
        ),
        ("\"allocated\":3", "\"x\":3", format!("at byte {end}: line 3: missing field `allocated`")),
        (
            "\"operators\":2",
            "\"operators\":3",
            "lines are missing: the end counts 3 operators and 0 markers, but the file has 2 and 0".into(),
        ),
        ("\"num_alloc_retries\":0}\n", "\"num_alloc_retries\":0}\n{}\n", "line 5: there is data after the end".into()),
        (
            "{\"kind\":\"end\",\"operators\":2,\"markers\":0",
            "{\"kind\":\"marker\",\"name\":\"m\",\"position\":3}\n{\"kind\":\"end\",\"operators\":2,\"markers\":1",
            "the marker `m` comes after 3 operators, but there are only 2".into(),
        ),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let told = refused(text.replace(from, to).as_bytes());
        assert!(told.contains(&message), "{told}, expected {message}");
    }
    let deep = format!("{}\n{}\n", text.lines().next().unwrap(), "[".repeat(500_000));
    assert!(refused(deep.as_bytes()).contains("line 2: "));
    refused(&[text.as_bytes(), b"\xff\xfe\n"].concat());
}

/// Other readers of JSON refuse such a file.
fn ignored_text_that_was_not_utf_8_was_read() {
    let text = String::from_utf8(saved()).unwrap();
    let mut start = text.find('\n').unwrap() + 1; // a header with such text is that of no tracker's file
    for (number, line) in (2..).zip(text[start..].split_inclusive('\n')) {
        let (before, behind) = text.as_bytes().split_at(start + 1);
        let ignored = [before, b"\"x\":\"\xff\",", behind].concat();
        assert_eq!(refused(&ignored), format!("at byte {}: line {number}: this is not UTF-8", start + 6));
        start += line.len();
    }
}

/// Such lines were read, although nothing writes them: the fields of an object were also taken from a list, in the
/// order of this program's source, and its kind from a number.
fn lists_and_numbers_were_read_as_lines_that_are_objects() {
    let text = String::from_utf8(saved()).unwrap();
    let (list, of_kind) =
        ("invalid type: sequence, expected an object", "invalid type: integer `2`, expected a string");
    for (from, to, message) in [
        ("{\"kind\":\"end\",\"operators\":2,\"markers\":0,\"num_alloc_retries\":0}", "[\"end\",2,0,0]", list),
        ("{\"allocated\":1,\"active\":1,\"reserved\":1}", "[1,1,1]", list),
        ("{\"kind\":\"end\"", "{\"kind\":2", of_kind),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let told = refused(text.replace(from, to).as_bytes());
        assert!(told.contains(message), "{told}, expected {message}");
    }
}

fn a_newer_version() {
    let text = String::from_utf8(saved()).unwrap().replace("\"version\":1", "\"version\":2");
    let message = "at byte 0: line 1: the file has version 2 of the format, but this program reads version 1: use \
                   a newer program";
    assert_eq!(refused(text.as_bytes()), message);
}

fn a_line_without_end() {
    let header = String::from_utf8(saved()).unwrap().lines().next().unwrap().to_owned();
    let text = format!("{header}\n{{\"kind\":\"{}", "a".repeat(3 << 20));
    let told = refused(text.as_bytes());
    assert_eq!(told, format!("at byte {}: line 2: the line is longer than 1048576 bytes", header.len() + 1));
}
