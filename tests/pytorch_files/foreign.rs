//! Files that are not snapshots, and errors in files that nearly are.

use accelerator_tracker::FileError;
use accelerator_tracker::snapshot::MemorySnapshot;
use libtest_mimic::{Failed, Trial};

use crate::ages::read;
use crate::made::{Dict, Integer, List, Made, Raw, Text, pickle};
use crate::real::data;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("foreign::files_of_other_kinds_are_named", kinds),
        Trial::test("foreign::what_is_wrong_is_said_with_its_place", wrong),
        Trial::test("foreign::none_is_an_empty_list", none),
        Trial::test("foreign::a_missing_file", missing),
        Trial::test("foreign::code_is_refused", code),
    ]
}

pub(crate) fn refusal(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().message().unwrap().trim_start_matches("made.pickle: ").to_owned()
}

fn kinds() -> Result<(), Failed> {
    for (bytes, expected) in [
        (&b""[..], "not a snapshot: the file seems to be empty"),
        (b"{\"version\": 1}\n", "seems to be JSON"),
        (b"\x89PNG\r\n\x1a\n", "seems to be a picture"),
        (b"PK\x03\x04\x14\x00", "seems to be a zip archive, such as `torch.save` writes"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "older versions of `torch.save`"),
        (b"\x1f\x8b\x08", "compressed with gzip"),
        (b"(\xb5/\xfd\x04", "compressed with zstd"),
        (b"<!doctype html>", "seems to be a page"),
        (b"hello\n", "not a snapshot: the file is not a pickle of a dict or list"),
        (b"\x80\x04\x00", "at byte 2: 0x00 is not a pickle opcode: the file is damaged or not a pickle"),
        (b"\x80\x04N.", "the snapshot is None, but should be a"),
        (b"\x80\x04}\x8c\x01aNs.", "not a snapshot, but another pickle: a dict without `segments`, with `a`"),
    ] {
        let refused = refusal(bytes);
        assert!(refused.contains(expected), "{refused}");
    }
    let tracker = MemorySnapshot::read(data("tiny_transformer.tracker.pickle")).unwrap_err();
    assert!(tracker.to_string().contains("a memory tracker's file: use `accel tracker`"), "{tracker}");
    Ok(())
}

fn wrong() -> Result<(), Failed> {
    let segment = |key, value| {
        let mut fields = vec![("address", Integer(0)), ("total_size", Integer(512)), ("blocks", List(vec![]))];
        fields.retain(|(own, _)| *own != key);
        fields.extend([(key, value)]);
        Dict(vec![("segments", List(vec![Dict(fields)]))])
    };
    let entry =
        |fields| Dict(vec![("segments", List(vec![])), ("device_traces", List(vec![List(vec![Dict(fields)])]))]);
    let alloc = || ("action", Text("alloc"));
    for (made, expected) in [
        (
            segment("address", Integer(-1)),
            "at byte 19: `address` of a segment is -1, but should be a whole number from 0",
        ),
        (
            segment("address", Raw(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01")),
            "`address` of a segment is an int, but",
        ),
        (segment("total_size", Text("2 MiB")), "`total_size` of a segment is a str, but should be a whole number"),
        (segment("blocks", Integer(1)), "`blocks` of a segment is 1, but should be a list"),
        (segment("blocks", List(vec![Integer(1)])), "a block is an int, but should be a dict"),
        (segment("blocks", List(vec![Dict(vec![("size", Integer(1))])])), "a block has no `state`"),
        (segment("segment_type", Text("huge")), "unknown `segment_type` `huge`"),
        (segment("device", Integer(1 << 40)), "should be the number of a device"),
        (segment("frames", List(vec![Integer(7)])), "at byte 19: a frame is an int, but should be a dict"),
        (segment("segment_pool_id", List(vec![Integer(7)])), "should be a pair of whole numbers"),
        (Dict(vec![("segments", List(vec![Dict(vec![])]))]), "at byte 19: a segment has no `address`"),
        (Dict(vec![("segments", List(vec![Integer(1)]))]), "a segment is an int, but should be a dict"),
        (Dict(vec![("segments", Integer(1))]), "`segments` of the snapshot is 1, but should be a list"),
        (entry(vec![]), "at byte 42: an entry of the history has no `action`"),
        (entry(vec![alloc(), ("size", Integer(1))]), "an entry of the history has no `addr`"),
        (entry(vec![alloc(), ("addr", Integer(1))]), "an entry of the history has no `size`"),
        (entry(vec![alloc(), ("time_us", Text("now"))]), "`time_us` of an entry of the history is a str"),
        (Dict(vec![("segments", List(vec![])), ("device_traces", List(vec![Integer(1)]))]), "should be a list"),
        (
            Dict(vec![("segments", List(vec![])), ("accelerator", Dict(vec![("version", Integer(1 << 40))]))]),
            "the snapshot was written by a newer version of this library: read it with that one",
        ),
    ] {
        let refused = refusal(&pickle(&made));
        assert!(refused.contains(expected), "{refused}\n{expected}");
    }
    Ok(())
}

fn none() -> Result<(), Failed> {
    let segment = || {
        let fields =
            [("address", Integer(1)), ("total_size", Integer(2)), ("blocks", Made::None), ("frames", Made::None)];
        List(vec![Dict(fields.into())])
    };
    let made = Dict(vec![("segments", segment()), ("aliases", Made::None), ("device_traces", Made::None)]);
    let snapshot = read(&pickle(&made))?;
    assert_eq!((snapshot.segments.len(), snapshot.aliases.len(), snapshot.device_traces.len()), (1, 0, 0));
    assert_eq!((snapshot.segments[0].blocks.len(), snapshot.segments[0].frames.len()), (0, 0));
    Ok(())
}

fn missing() -> Result<(), Failed> {
    let error = MemorySnapshot::read("no/such.pickle").unwrap_err();
    assert!(matches!(error, FileError::Io { doing: "opened", .. }), "{error}");
    assert!(error.to_string().starts_with("no/such.pickle: cannot be opened: "), "{error}");
    let error = MemorySnapshot::default().write("no/such.pickle").unwrap_err();
    assert!(error.to_string().starts_with("no/such.pickle: cannot be written: "), "{error}");
    Ok(())
}

/// Code is refused wherever a pickle may contain a value, and before any element is passed on.
fn code() -> Result<(), Failed> {
    let nasty = || Raw(b"cposix\nsystem\nX\x04\x00\x00\x00true\x85R");
    let places: [Made; 4] = [
        nasty(),
        Dict(vec![("segments", nasty())]),
        Dict(vec![("segments", List(vec![])), ("device_traces", List(vec![List(vec![nasty()])]))]),
        Dict(vec![("accelerator", nasty()), ("segments", List(vec![]))]),
    ];
    for made in places {
        let refused = refusal(&pickle(&made));
        assert!(refused.contains("refused GLOBAL of `posix.system`: a pickle may only hold data"), "{refused}");
    }
    Ok(())
}
