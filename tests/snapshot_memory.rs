//! A snapshot larger than memory should need: what is in use while it is read, counted by the allocator of this program.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "pytorch_files/endless.rs"]
mod endless;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::BufReader;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerator_tracker::snapshot::{Action, SnapshotVisitor, Stop, TraceEntry, visit};
use endless::Endless;

const MIB: usize = 1 << 20;

/// Counts what is in use.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

impl Counting {
    fn add(size: usize) {
        MOST.fetch_max(USED.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
    }
}

// SAFETY: All is the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: As the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: As the caller promises.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // As if both were there for a moment, which they may be.
        Self::add(size);
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: As the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Tally {
    segments: u64,
    entries: u64,
    allocated: u64,
    frames: u64,
}

impl SnapshotVisitor for Tally {
    fn segment(&mut self, _: accelerator_tracker::snapshot::Segment) -> Result<(), Stop> {
        self.segments += 1;
        Ok(())
    }

    fn entry(&mut self, _: u32, entry: TraceEntry) -> Result<(), Stop> {
        self.entries += 1;
        self.allocated += if entry.action == Action::Alloc { entry.size } else { 0 };
        self.frames += entry.frames.len() as u64;
        Ok(())
    }
}

/// Reads a snapshot of about so many bytes: the bytes that it had, and the most that were in use.
fn read(bytes: u64) -> (u64, usize) {
    let mut file = Endless::new(bytes);
    let mut tally = Tally::default();
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    visit(BufReader::new(&mut file), "endless.pickle", &mut tally).unwrap();
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(file.written >= bytes);
    let expected = (file.segments, file.entries, file.allocated, file.frames);
    assert_eq!((tally.segments, tally.entries, tally.allocated, tally.frames), expected);
    println!("{} MiB, {} entries: {} MiB in use at most", file.written >> 20, tally.entries, most / MIB);
    (file.written, most)
}

/// The memo has four bytes for each thing that a pickle may refer to, so about an eighth of the file, and while it grows twice that.
fn bound(file: u64) -> usize {
    4 * MIB + file as usize / 4
}

#[test]
fn memory_grows_with_the_memo_alone() {
    for megabytes in [4, 24] {
        let (file, most) = read(megabytes << 20);
        assert!(most < bound(file), "{most} bytes for {file}");
    }
}

/// As large as `ACCELERATOR_SNAPSHOT_MIB` says, else two gigabytes.
#[test]
#[ignore = "takes a minute with optimisation, many without"]
fn two_gigabytes() {
    let megabytes = std::env::var("ACCELERATOR_SNAPSHOT_MIB").map_or(2048, |text| text.parse().unwrap());
    let (file, most) = read(megabytes << 20);
    assert!(most < bound(file), "{most} bytes for {file}");
}
