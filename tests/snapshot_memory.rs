//! Reading snapshots larger than the memory needed for it. This program's global allocator counts the memory in use.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "pytorch_files/endless.rs"]
mod endless;
#[path = "pytorch_files/operations.rs"]
mod operations;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::BufReader;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_tracker::Limits;
use accelerator_tracker::snapshot::{
    Annotation, Collector, DeviceNotes, Segment, SnapshotVisitor, Stop, TraceAction, TraceEntry, visit, visit_with,
};
use endless::Endless;
use operations::operations;

const MIB: usize = 1 << 20;

/// Counts the memory in use.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

impl Counting {
    fn add(size: usize) {
        let taken = Self::taken(size);
        MOST.fetch_max(USED.fetch_add(taken, Ordering::Relaxed) + taken, Ordering::Relaxed);
    }

    /// What an allocation takes of the system's allocator, which adds a header and rounds up.
    fn taken(size: usize) -> usize {
        (size + 8).next_multiple_of(16).max(32)
    }
}

// SAFETY: Everything is forwarded to the system's allocator. Counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: As the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(Self::taken(layout.size()), Ordering::Relaxed);
        // SAFETY: As the caller guarantees.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Counted as if both existed for a moment, which may be the case.
        Self::add(size);
        USED.fetch_sub(Self::taken(layout.size()), Ordering::Relaxed);
        // SAFETY: As the caller guarantees.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Tally {
    notes: u64,
    segments: u64,
    aliases: u64,
    entries: u64,
    annotations: u64,
    allocated: u64,
    frames: u64,
}

impl SnapshotVisitor for Tally {
    fn notes(&mut self, _: DeviceNotes) -> Result<(), Stop> {
        assert_eq!((self.segments, self.entries), (0, 0), "notes come before everything else");
        self.notes += 1;
        Ok(())
    }

    fn segment(&mut self, _: Segment) -> Result<(), Stop> {
        self.segments += 1;
        Ok(())
    }

    fn alias(&mut self, _: Segment) -> Result<(), Stop> {
        self.aliases += 1;
        Ok(())
    }

    fn annotation(&mut self, _: Annotation) -> Result<(), Stop> {
        self.annotations += 1;
        Ok(())
    }

    fn entry(&mut self, _: u32, entry: TraceEntry) -> Result<(), Stop> {
        self.entries += 1;
        self.allocated += if entry.action == TraceAction::Alloc { entry.size } else { 0 };
        self.frames += entry.frames.len() as u64;
        Ok(())
    }
}

/// Takes a lock for one test at a time, because the count covers the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the peak of the memory in use during a run, in bytes.
fn most_in_use(run: impl FnOnce()) -> usize {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    run();
    MOST.load(Ordering::Relaxed) - before
}

/// Reads a snapshot of about this many bytes. Returns its actual size, and the peak of the memory in use.
fn read(bytes: u64) -> (u64, usize) {
    let mut file = Endless::new(bytes);
    let mut tally = Tally::default();
    let most = most_in_use(|| visit(BufReader::new(&mut file), "endless.pickle", &mut tally).unwrap());
    assert!(file.written >= bytes);
    let expected = (file.segments, file.entries, file.allocated, file.frames);
    assert_eq!((tally.segments, tally.entries, tally.allocated, tally.frames), expected);
    println!("{} MiB, {} entries: {} MiB in use at most", file.written >> 20, tally.entries, most / MIB);
    (file.written, most)
}

/// Returns the limit for a file. The memo has four bytes for each object that a pickle may refer to, which is about an
/// eighth of the file, and twice that while the memo grows.
fn bound(file: u64) -> usize {
    4 * MIB + file as usize / 4
}

#[test]
fn memory_grows_with_the_memo_alone() {
    let _alone = alone();
    for megabytes in [4, 24] {
        let (file, most) = read(megabytes << 20);
        assert!(most < bound(file), "{most} bytes for {file}");
    }
}

/// A pickle that requests much memory gets exactly what its reader may use, whichever part it makes grow.
#[test]
fn a_hostile_pickle_takes_what_it_may_and_no_more() {
    const LIMIT: usize = MIB;
    /// For the reader's own tables, and the error.
    const BESIDE: usize = 64 << 10;
    let _alone = alone();
    let long = [&b"V"[..], &vec![0xe9; LIMIT], b"\n"].concat();
    let text = [&b"X\xff\xff\xff\x7f"[..], &vec![b'a'; 2 * LIMIT]].concat();
    let falling: Vec<_> =
        (0..300_000_u32).rev().flat_map(|number| [&b"r"[..], &number.to_le_bytes()].concat()).collect();
    // A list whose elements are passed on, each with its own list of frames, which is kept.
    let frames = (0..100_000_u32).flat_map(|line| {
        let line = line.to_le_bytes();
        [&b"}(\x8c\x06action\x8c\x08snapshot\x8c\x06frames](}(\x8c\x08filename\x8c\x00\x8c\x04lineJ"[..], &line, b"ueu"]
            .concat()
    });
    let frames = [&b"}(\x8c\x08segments]\x8c\x0ddevice_traces](]("[..], &frames.collect::<Vec<_>>()].concat();
    let many = |operations: &[u8]| operations.repeat(8 * LIMIT / operations.len() / 16);
    let mut hostile = vec![long, text, [&b"N"[..], &falling].concat(), frames];
    for operations in [
        &b"}"[..],
        b"]",
        b")",
        b"\x8f",
        b"2",
        b"}0",
        b"\x8c\x00",
        b"\x8c\x01a\x94",
        b")\x94",
        b"]Na",
        b"}NNs",
        b"\x8f(NNN\x90",
        b")))\x87",
        b"(N(NNl",
        b"C\x00",
        b"]\x94N\x94a0",
        b"\x8a\x00",
    ] {
        hostile.push([&b"N"[..], &many(operations)].concat());
        // The same, all in one list.
        hostile.push([&b"](N"[..], &many(operations), b"e"].concat());
    }
    for operations in hostile {
        let pickle = [&b"\x80\x04"[..], &operations].concat();
        let limits = Limits { memory: LIMIT as u64, ..Limits::default() };
        let mut told = String::new();
        let most = most_in_use(|| {
            let read = visit_with(&*pickle, "hostile.pickle", &mut Tally::default(), limits);
            told = read.unwrap_err().to_string();
        });
        let shown = operations[..operations.len().min(20)].escape_ascii();
        println!("{shown}…: {most} bytes in use at most; {told}");
        assert!(most < LIMIT + BESIDE, "{shown}…: {most} bytes; {told}");
    }
}

/// A value of any size needs room for copies that the reader makes of it.
#[test]
fn a_pickle_with_one_large_value_takes_what_it_may_and_no_more() {
    const LIMIT: usize = 256 << 10;
    /// For the reader's own tables, and the error.
    const BESIDE: usize = 16 << 10;
    let _alone = alone();
    let mut size = 1000;
    while size < LIMIT {
        for pickle in with_a_large_value(size) {
            let limits = Limits { memory: LIMIT as u64, ..Limits::default() };
            let read = |visitor: &mut dyn SnapshotVisitor| {
                let read = visit_with(&*pickle, "large.pickle", visitor, limits);
                read.err().map_or_else(String::new, |error| error.to_string())
            };
            let mut told = [String::new(), String::new()];
            let most = [
                most_in_use(|| told[0] = read(&mut Tally::default())),
                // What is collected has a limit of its own.
                most_in_use(|| told[1] = read(&mut Collector::new(limits))),
            ];
            let (first, last) = (&pickle[..pickle.len().min(60)], &pickle[pickle.len() - 20..]);
            let shown = format!("{}…{}", first.escape_ascii(), last.escape_ascii());
            let is_within = most[0] < LIMIT + BESIDE && most[1] < most[0] + LIMIT + BESIDE;
            assert!(is_within, "{shown} of {size}: {most:?} bytes; {told:?}");
            let is_too_large = told.iter().any(|told| told.contains("of memory"));
            assert!(size > LIMIT / 128 || !is_too_large, "{shown} of {size}: {told:?}");
        }
        size += size / 6;
    }
}

/// A string does not count for more than the copies of it that may exist at once.
#[test]
fn a_pickle_with_one_string_of_an_eighth_of_the_limit_is_read() {
    const LIMIT: usize = 256 << 10;
    let _alone = alone();
    let length = (LIMIT as u32 / 8).to_le_bytes();
    for code in [&b"X"[..], b"B", b"\x8b"] {
        let before = operations("\u{80}\u{4}}('segments']'a'");
        let pickle = [&before, code, &length, &vec![b'1'; LIMIT / 8], b"u."].concat();
        let limits = Limits { memory: LIMIT as u64, ..Limits::default() };
        visit_with(&*pickle, "string.pickle", &mut Tally::default(), limits).unwrap();
    }
}

/// Returns pickles with text of so many bytes, or an object with an eighth as many values.
fn with_a_large_value(size: usize) -> Vec<Vec<u8>> {
    let length = (size as u32).to_le_bytes();
    let text = |code: &[u8]| [code, &length, &vec![b'a'; size]].concat();
    let many = |first: &[u8], value: &[u8], last: &[u8]| [first, &value.repeat(size / 8), last].concat();
    let values = [
        text(b"X"),
        text(b"B"),
        text(b"\x8b"),
        [&b"V"[..], &vec![0xe9; size], b"\n"].concat(),
        many(b"(", b"N", b"t"),
        many(b"(", b"N", b"l"),
        many(b"(", b")", b"t"),
        many(b"(", b"NN", b"d"),
        many(b"(", b"N", b"\x91"),
        many(b"](", b"N", b"e"),
        many(b"}(", b"NN", b"u"),
        many(b"\x8f(", b"N", b"\x90"),
        many(b"(", b"\x8c\x01a", b"t"),
        many(b"NN\x86q\x000ccollections\nOrderedDict\n](", b"h\x00", b"e\x85R"),
    ];
    // What is in a list of frames is kept.
    const FRAMES: &str = "}('segments'](}('address'K1'total_size'K1'frames'";
    let places = [String::new(), FRAMES.to_owned(), format!("{FRAMES}](}}('filename''a''line'")];
    let places = places.map(|place| operations(&place));
    let pickles = values.iter().flat_map(|value| places.each_ref().map(|place| [place, &value[..], b"ueueu"].concat()));
    pickles.chain(with_a_long_list(size / 8)).map(|operations| [b"\x80\x04", &operations[..], b"."].concat()).collect()
}

/// Returns pickles with each list that a snapshot may have. They refer to words by letters.
fn with_a_long_list(count: usize) -> impl Iterator<Item = Vec<u8>> {
    const WORDS: &str = "'filename'qf0 'line'ql0 'action'qa0 'snapshot'qs0 'size'qz0 'state'qt0 'inactive'qi0 'name'qn0
        'before'qb0 'kind'qk0 'refused'qr0 'pool'qp0 'address'qd0 'total_size'qo0 'stage'qg0
        }(hfhfhlK1uqx0";
    const NOTES: &str = "}('segments']'accelerator'}('devices'](}(";
    let text = format!("'{}'", "a".repeat(255));
    let blocks = "}(hzK1hthiu".repeat(4);
    let frames = ["}(hahs'frames'](", &"hx".repeat(40), "}(hfhfhlJ0000ueu"].concat();
    let fields = ["}(hahs'frames'](}(hfhfhlJ0000", &"hzK1".repeat(14), "ueu"].concat();
    let lists = [
        ("}('segments'](", "}(hdK1hoK1u", "e"),
        ("}('segments'](}(hdK1hoK1'blocks'](", "}(hzK1hthiu", "eue"),
        ("}('segments'](", &["}(hdK1hoK1'blocks'](", &blocks, "eu"].concat(), "e"),
        ("}('segments'](}(hdK1hoK1'frames'](", "}(hfhfhlJ0000u", "eue"),
        ("}('segments']'aliases'](", "}(hdK1hoK1u", "e"),
        ("}('segments']'device_traces'](](", "}(hahsu", "ee"),
        ("}('segments']'device_traces'](](", "}(hahshfhlu", "ee"),
        ("}('segments']'device_traces'](](", &frames, "ee"),
        ("}('segments']'device_traces'](](", &fields, "ee"),
        ("}('segments']'device_traces'](](", "}(hahs'other'K1u", "ee"),
        ("}('segments']'device_traces'](](", "}(hahs'1'K1'2'K1'3'K1'4'K1'5'K1'6'K1'7'K1'8'K1u", "ee"),
        ("}('segments']'device_traces'](](", &["}(hahs'compile_context'", &text, "u"].concat(), "ee"),
        ("}('segments']'device_traces'](](", &["}(hahs'other'", &text, "u"].concat(), "ee"),
        ("}('segments']'device_traces'](", "]", "e"),
        ("}('segments']'external_annotations'](", "}(hghshnhsu", "e"),
        (&[NOTES, "'notes']("].concat(), "}(hbK1hkhru", "eueu"),
        (&[NOTES, "'pool_names']("].concat(), "}(hpK1K1\u{86}hnhnu", "eueu"),
        (&[NOTES, "'segment_order']("].concat(), "K1", "eueu"),
    ];
    let list = move |(before, element, after): (&str, &str, &str)| {
        let words = operations(&WORDS.replace('\n', ""));
        [words, operations(before), numbered(element, count), operations(after), b"u".to_vec()].concat()
    };
    lists.map(list).into_iter()
}

/// Returns the operations so many times, each time with another number in place of 0000.
fn numbered(written: &str, count: usize) -> Vec<u8> {
    let element = operations(written);
    let place = element.windows(5).position(|window| window == b"J0000");
    let number = |index: u32| {
        let mut element = element.clone();
        if let Some(place) = place {
            element[place + 1..place + 5].copy_from_slice(&index.to_le_bytes());
        }
        element
    };
    (0..count as u32).flat_map(number).collect()
}

#[test]
fn all_lists_are_passed_on_in_pieces() {
    const PARTS: u64 = 2000;
    let _alone = alone();
    let list = |part: &str| [operations("]("), operations(part).repeat(PARTS as usize), operations("e")].concat();
    let segments = list("}('address'K1'total_size'K1'blocks'](}('size'K1'state''inactive'ueu");
    let entries = list("}('action''alloc''addr'K1'size'K1u");
    let pickle = [
        operations("\u{80}\u{4}}('accelerator'}('devices'](}('kind''host'ueu'segments'"),
        segments.clone(),
        operations("'aliases'"),
        segments,
        operations("'device_traces']("),
        entries.repeat(3),
        operations("e'external_annotations'"),
        list("}('stage''START''name''step'u"),
        operations("u."),
    ];
    let pickle = pickle.concat();
    let limits = Limits { memory: 16 << 10, ..Limits::default() };
    let mut tally = Tally::default();
    visit_with(&*pickle, "lists.pickle", &mut tally, limits).unwrap();
    assert_eq!(tally.notes, 1);
    assert_eq!(
        [tally.segments, tally.aliases, tally.entries, tally.annotations],
        [1, 1, 3, 1].map(|lists| lists * PARTS)
    );
}

#[test]
fn a_repeated_list_is_passed_on_once() {
    let _alone = alone();
    let segments = "](}('address'K1'total_size'K1ue";
    let annotations = "](}('stage''START''name''step'ue";
    let histories = "](](}('action''alloc''addr'K1'size'K1uee";
    let lists =
        format!("'segments'{segments}'aliases'{segments}'external_annotations'{annotations}'device_traces'{histories}");
    let pickle = operations(&["\u{80}\u{4}}(", &lists, &lists, "u."].concat());
    let mut tally = Tally::default();
    visit(&*pickle, "repeated.pickle", &mut tally).unwrap();
    assert_eq!([tally.segments, tally.aliases, tally.annotations, tally.entries], [1; 4]);
}

/// Later elements may refer to parts of earlier ones. Only lists of frames are kept for that.
#[test]
fn parts_that_no_writer_shares_are_forgotten() {
    const ENTRIES: usize = 2000;
    let _alone = alone();
    let before = operations("\u{80}\u{4}}('segments']'device_traces'](](");
    let limits = Limits { memory: 64 << 10, ..Limits::default() };
    for part in ["J0000", "}('line'J0000u"] {
        let entries = numbered(&["}('action''snapshot''other'](", part, "e\u{94}u"].concat(), ENTRIES);
        let mut tally = Tally::default();
        let pickle = [&before[..], &entries, &operations("eeu.")].concat();
        visit_with(&*pickle, "parts.pickle", &mut tally, limits).unwrap();
        assert_eq!(tally.entries, ENTRIES as u64);
    }
}

/// The file size is `ACCELERATOR_SNAPSHOT_MIB`, by default two gigabytes.
#[test]
#[ignore = "takes a minute with optimisation, many without"]
fn two_gigabytes() {
    let _alone = alone();
    let megabytes = std::env::var("ACCELERATOR_SNAPSHOT_MIB").map_or(2048, |text| text.parse().unwrap());
    let (file, most) = read(megabytes << 20);
    assert!(most < bound(file), "{most} bytes for {file}");
}
