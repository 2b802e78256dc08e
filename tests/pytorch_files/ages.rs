//! Files in all pickle protocols, and of PyTorch versions that wrote fewer fields.

use std::cell::Cell;
use std::io::{BufReader, Read};
use std::sync::Arc;

use accelerator_tracker::Limits;
use accelerator_tracker::snapshot::{
    Annotation, BlockState, Collector, DeviceNotes, MemorySnapshot, PoolKind, Segment, Setting, SnapshotVisitor, Stop,
    TraceAction, TraceEntry, visit,
};
use libtest_mimic::{Completion, Failed, Trial};

use crate::made::{Dict, Flag, Integer, List, Made, Text, pair, pickle};
use crate::python::{run, with_python};
use crate::real::data;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::ignorable_test("ages::every_protocol_and_pickler", protocols),
        Trial::test("ages::what_older_files_lack_has_defaults", defaults),
        Trial::test("ages::segments_alone", segments_alone),
        Trial::test("ages::blocks_with_a_history", blocks_with_history),
        Trial::test("ages::what_is_not_known_is_kept_or_ignored", unknown),
        Trial::test("ages::a_visitor_stops", stops),
    ]
}

pub(crate) fn read(bytes: &[u8]) -> Result<MemorySnapshot, Failed> {
    let mut collector = Collector::new(Limits::default());
    visit(bytes, "made.pickle", &mut collector)?;
    Ok(collector.snapshot)
}

/// Every protocol gives the same snapshot, and entries are passed on while the file is read, wherever its lists are.
fn protocols() -> Result<Completion, Failed> {
    with_python("python", || {
        let folder = tempfile::tempdir()?;
        let file = data("tiny_transformer.snapshot.pickle");
        let expected = MemorySnapshot::read(&file)?;
        let mut of_three = expected.clone();
        of_three.device_traces.extend([Vec::new(), expected.device_traces[0][..1500].to_vec()]);
        run(include_str!("ages.py"), &[file.to_str().unwrap(), folder.path().to_str().unwrap()])?;
        let mut count = 0;
        for entry in std::fs::read_dir(folder.path())? {
            let path = entry?.path();
            let name = path.file_name().unwrap().to_string_lossy();
            let bytes = std::fs::read(&path)?;
            let left = Cell::new(0);
            let collector = Collector::new(Limits::default());
            let mut watch = Watch { left: &left, at_first_entry: 0, collector };
            visit(BufReader::new(Draining { bytes: &bytes, left: &left }), &path, &mut watch)?;
            let expected = if name.starts_with("three") { &of_three } else { &expected };
            assert!(watch.collector.snapshot == *expected, "{name}");
            assert!(watch.at_first_entry > bytes.len() / 10, "{name}: {} bytes left", watch.at_first_entry);
            count += 1;
        }
        assert_eq!(count, 6 * 7);
        Ok(())
    })
}

/// Bytes, with a shared count of how many are left.
struct Draining<'a> {
    bytes: &'a [u8],
    left: &'a Cell<usize>,
}

impl Read for Draining<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.left.set(self.bytes.len());
        Ok(count)
    }
}

struct Watch<'a> {
    left: &'a Cell<usize>,
    at_first_entry: usize,
    collector: Collector,
}

impl SnapshotVisitor for Watch<'_> {
    fn setting(&mut self, name: &str, setting: Setting) -> Result<(), Stop> {
        self.collector.setting(name, setting)
    }

    fn annotation(&mut self, annotation: Annotation) -> Result<(), Stop> {
        self.collector.annotation(annotation)
    }

    fn segment(&mut self, segment: Segment) -> Result<(), Stop> {
        self.collector.segment(segment)
    }

    fn history(&mut self, device: u32) -> Result<(), Stop> {
        self.collector.history(device)
    }

    fn entry(&mut self, device: u32, entry: TraceEntry) -> Result<(), Stop> {
        if self.collector.snapshot.device_traces == [[]] {
            self.at_first_entry = self.left.get();
        }
        self.collector.entry(device, entry)
    }
}

fn defaults() -> Result<(), Failed> {
    let block = |state, size| Dict(vec![("size", Integer(size)), ("state", Text(state))]);
    let segment = Dict(vec![
        ("address", Integer(4096)),
        ("total_size", Integer(3 << 20)),
        (
            "blocks",
            List(vec![block("active_allocated", 512), block("active_pending_free", 1024), block("inactive", 512)]),
        ),
    ]);
    let entry = Dict(vec![("action", Text("alloc")), ("addr", Integer(4096)), ("size", Integer(500))]);
    let oom = Dict(vec![("action", Text("oom")), ("size", Integer(7)), ("device_free", Integer(9))]);
    let snapshot = read(&pickle(&Dict(vec![
        ("accelerator", Dict(vec![("version", Integer(1)), ("devices", List(vec![Dict(vec![])]))])),
        ("segments", List(vec![segment])),
        ("device_traces", List(vec![List(vec![]), List(vec![entry, oom])])),
    ])))?;
    assert_eq!(snapshot.notes, [DeviceNotes { memory_fraction: 1.0, ..DeviceNotes::default() }]);
    let [segment] = &*snapshot.segments else { return Err("one segment".into()) };
    assert_eq!((segment.device, segment.stream, segment.pool_id, segment.is_expandable), (0, 0, (0, 0), false));
    assert_eq!(segment.segment_type, PoolKind::Large);
    assert_eq!((segment.allocated_size, segment.active_size, segment.requested_size), (512, 1536, 1536));
    let blocks: Vec<_> =
        segment.blocks.iter().map(|block| (block.address, block.requested_size, block.state)).collect();
    let expected =
        [(4096, 512, BlockState::Allocated), (4608, 1024, BlockState::PendingFree), (5632, 512, BlockState::Inactive)];
    assert_eq!(blocks, expected);
    assert!(segment.frames.is_empty() && segment.blocks[0].frames.is_empty());
    assert_eq!(snapshot.device_traces[0], []);
    let [entry, oom] = &*snapshot.device_traces[1] else { return Err("two entries".into()) };
    assert_eq!((entry.action, entry.address, entry.size, entry.time_us), (TraceAction::Alloc, 4096, 500, 0));
    assert_eq!((&*entry.user_metadata, &*entry.compile_context), ("", "N/A"));
    assert_eq!((oom.action, oom.address, oom.size), (TraceAction::OutOfMemory { device_free: 9 }, 0, 7));
    Ok(())
}

/// A snapshot may be a list instead of a dictionary, as in PyTorch's reader.
fn segments_alone() -> Result<(), Failed> {
    let segment = || Dict(vec![("address", Integer(0)), ("total_size", Integer(2 << 20)), ("blocks", List(vec![]))]);
    let snapshot = read(&pickle(&List(vec![segment(), segment()])))?;
    assert_eq!(snapshot.segments.len(), 2);
    assert_eq!(snapshot.segments[0].segment_type, PoolKind::Small);
    assert_eq!(read(b"\x80\x02].")?, MemorySnapshot::default());
    Ok(())
}

fn blocks_with_history() -> Result<(), Failed> {
    let frame = || Dict(vec![("name", Text("f")), ("filename", Text("a.py")), ("line", Integer(3))]);
    let uses = vec![
        Dict(vec![("addr", Integer(0)), ("real_size", Integer(500)), ("frames", List(vec![frame()]))]),
        Dict(vec![("addr", Integer(0)), ("real_size", Integer(7))]),
    ];
    let block = Dict(vec![("size", Integer(512)), ("state", Text("active_allocated")), ("history", List(uses))]);
    let segment = vec![("address", Integer(0)), ("total_size", Integer(512)), ("blocks", List(vec![block]))];
    let snapshot = read(&pickle(&List(vec![Dict(segment)])))?;
    let block = &snapshot.segments[0].blocks[0];
    assert_eq!((block.requested_size, &*block.frames[0].filename, block.frames[0].line), (500, "a.py", 3));
    Ok(())
}

fn unknown() -> Result<(), Failed> {
    let shared = b"]q\x05(K\x01e"; // an unknown list, and a reference to it
    let entry = |first| {
        Dict(vec![
            ("action", Text("annotate")),
            ("flag", Flag(true)),
            ("text", Text("new")),
            ("list", crate::made::Raw(if first { shared } else { b"h\x05" })),
            ("nothing", Made::None),
        ])
    };
    let settings = vec![
        ("max_split_size", Integer(-1)),
        ("list", List(vec![Integer(1)])),
        ("table", Dict(vec![("1", Integer(2))])),
        ("nothing", Made::None),
    ];
    let snapshot = read(&pickle(&Dict(vec![
        ("new", List(vec![List(vec![pair(1, 2)])])),
        ("newer", Dict(vec![("segments", Integer(1))])),
        ("segments", List(vec![])),
        ("device_traces", List(vec![List(vec![entry(true), entry(false)])])),
        ("allocator_settings", Dict(settings)),
    ])))?;
    let [first, second] = &*snapshot.device_traces[0] else { return Err("two entries".into()) };
    let other: Vec<(Arc<str>, Setting)> = vec![
        ("action".into(), Setting::Text("annotate".into())),
        ("flag".into(), Setting::Flag(true)),
        ("text".into(), Setting::Text("new".into())),
    ];
    assert_eq!((first.action, &first.other), (TraceAction::Other, &other));
    assert_eq!(first, second);
    let expected = [
        ("max_split_size".to_owned(), Setting::Integer(-1)),
        ("table".to_owned(), Setting::Table(vec![("1".to_owned(), 2)])),
    ];
    assert_eq!(snapshot.settings, expected);
    // Writing the snapshot again keeps the unknown action, also if another text comes first.
    let mut turned = snapshot.clone();
    turned.device_traces[0][0].other.rotate_left(1);
    for written in [&snapshot, &turned] {
        let mut bytes = Vec::new();
        written.write_to(&mut bytes)?;
        assert_eq!(read(&bytes)?, snapshot);
    }
    Ok(())
}

fn stops() -> Result<(), Failed> {
    struct First(u32);
    impl SnapshotVisitor for First {
        fn entry(&mut self, _: u32, _: TraceEntry) -> Result<(), Stop> {
            self.0 += 1;
            if self.0 == 3 { Err("seen enough".into()) } else { Ok(()) }
        }
    }
    let mut first = First(0);
    let bytes = std::fs::read(data("tiny_transformer.snapshot.pickle"))?;
    let stopped = visit(&*bytes, "tiny.pickle", &mut first).unwrap_err();
    assert_eq!((first.0, stopped.to_string()), (3, "tiny.pickle: seen enough".to_owned()));
    Ok(())
}
