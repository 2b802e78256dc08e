//! Pickles, kept as a whole and passed on in pieces, within a small memory limit that must hold.

use accelerator_tracker::snapshot::{Collector, SnapshotVisitor, visit_with};
use accelerator_tracker::tracker::TrackerStats;
use accelerator_tracker::{FileError, Limits};

use super::memory::peak_of;
use super::text::check_message;

/// So small that the longest inputs can exceed it.
const LIMIT: u64 = 1 << 16;
/// The buffers of readers, and a message.
const BUFFERS: u64 = 1 << 15;

/// Takes the parts of a snapshot, and drops them.
struct Nothing;

impl SnapshotVisitor for Nothing {}

pub fn run(data: &[u8]) {
    // So that most inputs are pickles.
    let bytes = if data.starts_with(b"\x80") { data.to_vec() } else { [b"\x80\x04", data].concat() };
    let limits = Limits { memory: LIMIT, ..Limits::default() };
    check(LIMIT, || TrackerStats::load_from(&*bytes, "a pickle", limits).map(drop));
    check(LIMIT, || visit_with(&*bytes, "a pickle", &mut Nothing, limits));
    // What is collected has a limit of its own.
    check(2 * LIMIT, || visit_with(&*bytes, "a pickle", &mut Collector::new(limits), limits));
}

fn check(most: u64, read: impl FnOnce() -> Result<(), FileError>) {
    let (result, peak) = peak_of(read);
    assert!(peak <= most + BUFFERS, "took {peak} bytes of memory, but may take {most}: {result:?}");
    if let Err(error) = result {
        check_message(&error.to_string());
    }
}
