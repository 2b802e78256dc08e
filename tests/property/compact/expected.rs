//! Tracks the ownership of bytes, by the physical memory behind the addresses and by events of the test itself. It has
//! no notion of chunks and alias ranges.

use std::collections::BTreeMap;
use std::rc::Rc;

use accelerator_conformance::{Controls, Faulty, PhysicalRange, Sim};
use accelerator_core::{Allocation, Backend, EventFlags, Stream};

use crate::model::machine::Driver;

/// The simulated device, or a driver around it.
pub(crate) trait Simulated: Driver {
    fn sim(&self) -> &Sim;
}

impl Simulated for Sim {
    fn sim(&self) -> &Sim {
        self
    }
}

impl Simulated for Faulty<Sim> {
    fn sim(&self) -> &Sim {
        self.inner()
    }
}

/// A block that is allocated or pending.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u32,
    pub(crate) small: bool,
    /// Other streams that used it.
    pub(crate) users: Vec<u32>,
    pub(crate) memory: Vec<PhysicalRange>,
}

/// A stream's work on freed bytes, which is not known to be over.
struct Work<B: Backend> {
    /// The stream that it was submitted to.
    stream: u32,
    entry: Entry,
    over: Rc<B::Event>,
}

/// Work of one stream on bytes that another stream got later. The other stream must wait for it on the device.
struct Behind<B: Backend> {
    work: Entry,
    over: Rc<B::Event>,
    /// The point that the other stream passes before it works on the bytes.
    next: Rc<B::Event>,
}

pub(crate) struct Expected<B: Backend> {
    /// The live blocks, by address.
    pub(crate) live: BTreeMap<u64, (Entry, Allocation<B>)>,
    /// Freed blocks that other streams still use, as far as the allocator knows.
    pub(crate) pending: Vec<Entry>,
    work: Vec<Work<B>>,
    behind: Vec<Behind<B>>,
    /// Whether a stream may wait on the device for other streams that still use memory it freed.
    pub(crate) waits_on_device: bool,
    /// Whether work is tracked by events. These are calls that may fail, and are needed only where a wait on the device
    /// delays later work.
    follows_work: bool,
}

impl<B: Simulated> Expected<B> {
    pub(crate) fn new(follows_work: bool) -> Self {
        let (live, pending, work, behind) = Default::default();
        let follows_work = follows_work && B::WAITS;
        Self { live, pending, work, behind, waits_on_device: false, follows_work }
    }

    /// Returns the blocks whose bytes no other block may have.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Entry> {
        self.live.values().map(|(entry, _)| entry).chain(&self.pending)
    }

    /// Records an allocation. The stream's work on the bytes must come after all unfinished work on them.
    pub(crate) fn allocated(&mut self, driver: &B, stream: Stream<B>, entry: Entry, allocation: Allocation<B>) {
        self.forget_what_is_over(driver);
        let others = self.work.iter().filter(|work| work.stream != entry.stream);
        let unfinished: Vec<_> = others.filter(|work| overlap(&work.entry.memory, &entry.memory)).collect();
        if !unfinished.is_empty() {
            let next = Rc::new(recorded(driver, stream));
            let behind = unfinished.iter().map(|work| {
                let (next, over) = (Rc::clone(&next), Rc::clone(&work.over));
                Behind { work: work.entry.clone(), over, next }
            });
            self.behind.extend(behind);
        }
        self.live.insert(entry.start, (entry, allocation));
    }

    /// Records the work submitted on a block so far, before the block is freed.
    pub(crate) fn note_work(&mut self, driver: &B, streams: &[Stream<B>], start: u64) {
        if !self.follows_work {
            return;
        }
        let entry = &self.live[&start].0;
        for stream in entry.users.iter().chain([&entry.stream]) {
            let over = Rc::new(recorded(driver, streams[*stream as usize]));
            self.work.push(Work { stream: *stream, entry: entry.clone(), over });
        }
        self.forget_what_is_over(driver);
    }

    /// Records which blocks are no longer pending. The streams that used them must have completed their work.
    pub(crate) fn no_longer_pending(&mut self, driver: &B, is_pending: impl Fn(&Entry) -> bool) {
        self.forget_what_is_over(driver);
        let (pending, gone) = std::mem::take(&mut self.pending).into_iter().partition(is_pending);
        self.pending = pending;
        let gone: Vec<Entry> = gone;
        for work in self.work.iter().filter(|work| work.stream != work.entry.stream) {
            let is_gone = gone.iter().any(|entry| entry.memory == work.entry.memory);
            assert!(!is_gone || self.waits_on_device, "stream {} still uses {:?}", work.stream, work.entry);
        }
    }

    /// Checks that no stream works on bytes before the work of their previous owners is over.
    pub(crate) fn check_order(&mut self, driver: &B) {
        self.behind.retain(|Behind { work, over, next }| {
            // In this order, because what is over now may not have been over before.
            let (is_next, is_over) = (driver.is_complete(next).unwrap(), driver.is_complete(over).unwrap());
            assert!(is_over || !is_next, "a stream reached bytes that another still works on: {work:?}");
            !is_over
        });
    }

    /// Checks that active blocks do not overlap, and that they and unfinished work still have their memory.
    pub(crate) fn check_memory(&mut self, driver: &B) {
        let mut taken: Vec<_> = self.active().flat_map(|entry| &entry.memory).collect();
        taken.sort_unstable();
        for pair in taken.windows(2) {
            let apart = pair[0].memory != pair[1].memory || pair[0].offset + pair[0].len <= pair[1].offset;
            assert!(apart, "the same bytes are used twice: {pair:?}");
        }
        self.forget_what_is_over(driver);
        // A fixed-size segment is freed by a call that waits for the device.
        let mapped = |entry: &&Entry| entry.memory.iter().all(|range| range.memory < Sim::BASE);
        let worked_on = self.work.iter().map(|work| &work.entry).filter(mapped);
        for entry in self.active().chain(worked_on) {
            let memory = driver.sim().physical(entry.start, entry.size);
            assert_eq!(memory.as_ref(), Some(&entry.memory), "other memory is mapped there now: {entry:?}");
        }
    }

    fn forget_what_is_over(&mut self, driver: &B) {
        self.work.retain(|work| !driver.is_complete(&work.over).unwrap());
    }
}

/// Returns an event after the stream's work so far.
fn recorded<B: Backend>(driver: &B, stream: Stream<B>) -> B::Event {
    let event = driver.event(EventFlags::default()).unwrap();
    driver.record(&event, stream.native()).unwrap();
    event
}

/// Whether they have bytes in common.
pub(crate) fn overlap(one: &[PhysicalRange], other: &[PhysicalRange]) -> bool {
    one.iter().any(|one| {
        other.iter().any(|other| {
            one.memory == other.memory && one.offset < other.offset + other.len && other.offset < one.offset + one.len
        })
    })
}
