//! A global allocator that counts per thread, so that what the harness does concurrently is not attributed to a test.
//! For a test with a process of its own, it also counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bytes of all threads that are allocated and not yet freed.
static IN_USE: AtomicI64 = AtomicI64::new(0);

thread_local! {
    // Without a destructor, so that counting does not allocate.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { calls: 0, in_use: 0, most: 0 }) };
}

/// What a thread has requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls that request memory: allocations and reallocations.
    pub(crate) calls: u64,
    /// Bytes allocated and not yet freed.
    pub(crate) in_use: i64,
    /// The peak of these bytes. While a block is reallocated, its old and new sizes both count.
    pub(crate) most: i64,
}

/// Returns the counts of this thread so far.
pub(crate) fn counts() -> Counts {
    COUNTS.get()
}

/// Resets the peak.
pub(crate) fn reset_most() {
    COUNTS.with(|counts| counts.set(Counts { most: counts.get().in_use, ..counts.get() }));
}

/// Returns the bytes that the process has allocated and not yet freed.
pub(crate) fn in_use_of_process() -> i64 {
    IN_USE.load(Ordering::Relaxed)
}

pub(crate) struct Counting;

impl Counting {
    fn add(size: usize) {
        IN_USE.fetch_add(size as i64, Ordering::Relaxed);
        // A thread that is exiting has no counts any more.
        let _ = COUNTS.try_with(|counts| {
            let Counts { calls, in_use, most } = counts.get();
            let in_use = in_use + size as i64;
            counts.set(Counts { calls: calls + 1, in_use, most: most.max(in_use) });
        });
    }

    fn remove(size: usize) {
        IN_USE.fetch_sub(size as i64, Ordering::Relaxed);
        let _ = COUNTS.try_with(|counts| {
            let in_use = counts.get().in_use - size as i64;
            counts.set(Counts { in_use, ..counts.get() });
        });
    }
}

// SAFETY: Everything is forwarded to the system's allocator. Counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: As the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: As the caller guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::remove(layout.size());
        // SAFETY: As the caller guarantees.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Counted as if both existed for a moment, which may be the case.
        Self::add(size);
        Self::remove(layout.size());
        // SAFETY: As the caller guarantees.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The counts cover everything that the thread itself does, and nothing else.
#[test]
fn a_thread_counts_its_own() {
    let before = counts();
    std::thread::spawn(|| drop(vec![0u8; 1 << 20])).join().unwrap();
    reset_most();
    let at_start = counts();
    let mut bytes = Vec::<u8>::with_capacity(1000);
    bytes.reserve_exact(3000);
    let held = counts();
    drop(bytes);
    assert!(at_start.in_use - before.in_use < 1 << 16, "the other thread's megabyte is not this one's");
    assert_eq!((held.calls - at_start.calls, held.in_use - at_start.in_use), (2, 3000));
    assert_eq!((held.most - at_start.in_use, counts().in_use), (4000, at_start.in_use));
}
