//! Runs a program on the allocator and on the model, and compares the two after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use accelerator_conformance::{Controls, Faulty, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, DevicePtr, Error, OutOfMemoryCause, Result, Stream};

use super::program::{Op, STREAMS};
use super::settings::{Expected, Settings};
use super::{Counters, Entry, Model};

/// What the test needs of a driver besides its controls.
pub(crate) trait Driver: Controls {
    /// Whether waiting for an event delays a stream's later work. Otherwise such waits have no effect.
    const WAITS: bool;

    /// Returns the bytes allocated and not freed.
    fn used(&self) -> u64;

    /// Returns the number of injected failures.
    fn faults(&self) -> u64 {
        0
    }
}

impl Driver for Sim {
    const WAITS: bool = false;

    fn used(&self) -> u64 {
        Sim::used(self)
    }
}

impl Driver for Faulty<Sim> {
    const WAITS: bool = true;

    fn used(&self) -> u64 {
        assert_eq!(Faulty::used(self), self.inner().used(), "the faulty driver and its inner driver differ");
        assert_eq!(self.misuses(), 0, "memory was freed that was not allocated");
        Faulty::used(self)
    }

    fn faults(&self) -> u64 {
        self.injected()
    }
}

/// An allocator and its model, which execute the same steps.
pub(crate) struct Machine<B: Driver> {
    pub(crate) accelerator: &'static Accelerator<B>,
    streams: Vec<Stream<B>>,
    /// The live allocations, by address.
    allocations: BTreeMap<u64, Allocation<B>>,
    pub(crate) model: Model,
    pub(crate) capacity: u64,
}

impl<B: Driver> Machine<B> {
    pub(crate) fn new(driver: B, capacity: u64) -> Self {
        let accelerator = Accelerator::new(driver, 0, AllocatorConfig::default()).unwrap();
        let mut streams = vec![accelerator.default_stream()];
        streams.extend((1..STREAMS).map(|_| accelerator.stream(0).unwrap()));
        assert!(streams.iter().map(|stream| stream.id().get()).eq(0..STREAMS));
        Self { accelerator, streams, allocations: BTreeMap::new(), model: Model::new(), capacity }
    }

    pub(crate) fn run(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.step(op));
    }

    pub(crate) fn accelerator(&self) -> &'static Accelerator<B> {
        self.accelerator
    }

    fn step(&mut self, op: &Op) {
        let allocator = self.accelerator.allocator();
        let driver = self.accelerator.backend();
        match op {
            Op::Allocate { bytes, stream } => self.allocate(*bytes, *stream),
            Op::Free { nth } => self.chosen(*nth).into_iter().for_each(|start| self.free(start)),
            Op::RecordUse { nth, stream } => {
                self.chosen(*nth).into_iter().for_each(|start| self.record_use(start, *stream));
            }
            Op::Hold(stream) => {
                driver.hold(self.streams[*stream as usize].native());
                self.model.streams.hold(*stream);
            }
            Op::Release(stream) => {
                driver.release(self.streams[*stream as usize].native());
                self.model.streams.release(*stream);
            }
            Op::Synchronize(stream) => {
                let done = self.streams[*stream as usize].synchronize();
                self.synchronized(done, [*stream]);
            }
            Op::SynchronizeAll => {
                let done = self.accelerator.synchronize();
                self.synchronized(done, 0..STREAMS);
            }
            Op::EmptyCache => self.empty_cache(),
            Op::ResetPeaks => {
                allocator.reset_peak_statistics();
                self.model.tally.reset_peaks();
            }
            Op::ResetAccumulated => {
                allocator.reset_accumulated_statistics();
                self.model.tally.reset_accumulated();
                self.model.counters = Counters::default();
            }
            Op::Configure(settings) => self.configure(settings),
            Op::SetFraction(fraction) => {
                allocator.set_memory_fraction(*fraction).unwrap();
                self.model.fraction = *fraction;
            }
            Op::FailAllocs(count) => {
                driver.fail_allocs(*count);
                self.model.failing_allocs = *count;
            }
        }
        self.check();
    }

    fn allocate(&mut self, bytes: u64, stream: u32) {
        let before = self.seen();
        let too_large = bytes >= 1 << 60;
        if !too_large {
            self.model.forget_uses_that_are_over();
        }
        let requested = NonZeroU64::new(bytes).unwrap();
        let result = self.accelerator.allocator().allocate(requested, self.streams[stream as usize]);
        let seen = self.since(before);
        if too_large {
            let Err(Error::OutOfMemory(report)) = result else { panic!("{bytes} bytes: {result:?}") };
            assert_eq!((report.cause, seen.total), (OutOfMemoryCause::TooLarge, 0));
            return;
        }
        let expected = self.model.settings.expected(bytes);
        let gone = self.settle_pending(&seen, Some((stream, expected)));
        assert!(
            seen.faults > 0 || self.model.entries.iter().all(|entry| !self.model.must_go(entry)),
            "not freed in time"
        );
        // Whether the segments before the call show what was free during it. With caching off they do not, because a
        // poll frees memory.
        let plain = seen.wait + seen.wait_host + seen.faults == 0 && (self.model.settings.caching || gone.is_empty());
        let expanded = self.model.expanded;
        let had_room = expanded && plain && self.has_room(stream, expected);
        let fit = self.best_fit(&gone, stream, expected).filter(|_| plain && !expanded);
        let injected = self.model.failing_allocs > 0 || seen.faults > 0;
        self.model.failing_allocs = self.model.failing_allocs.saturating_sub(seen.alloc + seen.create);
        match result {
            Ok(allocation) => {
                let start = allocation.ptr().trace_address();
                let entry = Entry {
                    start,
                    size: allocation.size(),
                    requested: allocation.requested().get(),
                    stream: allocation.stream().id().get(),
                    small: expected.small,
                    users: Vec::new(),
                    pending: None,
                };
                assert_eq!((entry.requested, entry.stream), (bytes, stream));
                match expanded {
                    true => self.check_expanded(&entry, expected, had_room, &seen),
                    false => self.check_place(&entry, expected, fit, self.fresh_segment()),
                }
                if plain && !expanded {
                    assert_eq!(fit.is_some(), seen.alloc == 0, "{expected:?}, best fit {fit:?}, {seen:?}");
                    assert!(fit.is_none() || seen.dealloc == 0, "gave back memory though {fit:?} fits");
                    let kept = self.model.fraction < 1.0 || seen.alloc != 1 || seen.dealloc == 0;
                    assert!(kept, "gave back memory though the device had room");
                }
                let waiting = self.pending_serves(stream, expected);
                let reuse = self.model.settings.device_side_reuse && plain && fit.is_none() && !expanded;
                assert!(!(reuse && waiting), "grew though waiting would have freed a pending block");
                self.absorb_segments();
                self.model.allocated(entry);
                self.allocations.insert(start, allocation);
            }
            Err(Error::OutOfMemory(report)) => {
                assert_eq!(fit, None, "out of memory though a block fits: {report}");
                assert!(!had_room, "out of memory though there was room: {report}");
                self.absorb_segments();
                self.check_report(&report, bytes, expected, injected);
                self.after_out_of_memory(report.cause, seen.wait_host > 0, stream, expected);
            }
            Err(error) => {
                assert!(seen.faults > 0, "{error}");
                self.absorb_segments();
            }
        }
    }

    fn after_out_of_memory(&mut self, cause: OutOfMemoryCause, waited: bool, stream: u32, expected: Expected) {
        if cause == OutOfMemoryCause::Rejected {
            self.model.counters.num_oom_rejections += 1;
            return;
        }
        self.model.counters.num_ooms += 1;
        assert_eq!(self.model.outstanding_uses(), 0, "failed without waiting for the streams");
        self.check_nothing_whole_is_free(None);
        if !waited && !self.model.expanded {
            // Like PyTorch, the allocator does not search again for blocks that became free while it waited.
            let fit = self.best_fit(&BTreeSet::new(), stream, expected);
            assert_eq!(fit, None, "failed although a block fits");
        }
    }

    fn free(&mut self, start: u64) {
        let allocation = self.allocations.remove(&start).unwrap();
        let stream = allocation.stream().id().get();
        let before = self.seen();
        self.accelerator.allocator().free(allocation).unwrap();
        let seen = self.since(before);
        let caching = self.model.settings.caching;
        let unmapped = !caching && self.waited_to_unmap(&seen);
        if unmapped {
            self.model.streams.may_have_waited();
        }
        self.model.freed(start);
        match self.model.entries.iter_mut().find(|entry| entry.start == start) {
            None if self.model.expanded && !self.model.settings.caching => {}
            None => {
                assert_eq!(seen.total, seen.dealloc, "a free without other uses called the driver: {seen:?}")
            }
            Some(Entry { pending: Some(uses), .. }) if seen.faults > 0 => {
                uses.iter_mut().for_each(|used| used.sure = false);
            }
            Some(entry) => assert_eq!(seen.record, entry.users.len() as u64, "{entry:?}"),
        }
        assert!(unmapped || seen.wait + seen.wait_host == 0, "a free waited");
        self.absorb_segments();
        match self.model.settings.caching {
            true => assert_eq!(seen.dealloc + seen.unmap, 0, "a free gave memory back"),
            false if seen.record == 0 && seen.faults == 0 => {
                self.check_nothing_whole_is_free(Some(stream));
                self.check_no_page_is_free(Some(stream));
            }
            false => {}
        }
    }

    fn record_use(&mut self, start: u64, stream: u32) {
        let before = self.seen();
        let allocator = self.accelerator.allocator();
        allocator.record_use(&self.allocations[&start], self.streams[stream as usize]).unwrap();
        assert_eq!(self.since(before).total, 0, "recording a use called the driver");
        let entry =
            self.model.entries.iter_mut().find(|entry| entry.start == start && entry.pending.is_none()).unwrap();
        if stream != entry.stream && !entry.users.contains(&stream) {
            entry.users.push(stream);
        }
    }

    fn empty_cache(&mut self) {
        let before = self.seen();
        let result = self.accelerator.allocator().empty_cache();
        let seen = self.since(before);
        self.settle_pending(&seen, None);
        self.absorb_segments();
        self.model.counters.empty_caches += 1;
        match result {
            Ok(()) => {
                assert_eq!(self.model.outstanding_uses(), 0, "empty_cache did not wait");
                self.check_nothing_whole_is_free(None);
                self.check_no_page_is_free(None);
            }
            Err(error) => assert!(seen.faults > 0, "{error}"),
        }
    }

    fn configure(&mut self, new: &Settings) {
        let allocator = self.accelerator.allocator();
        match (allocator.config().updated(&new.text()), self.model.settings.after(new)) {
            (Ok(config), Some(settings)) => {
                let before = self.seen();
                allocator.set_config(config);
                if self.waited_to_unmap(&self.since(before)) {
                    self.model.streams.may_have_waited();
                }
                self.model.expanded |= settings.expandable;
                self.model.settings = settings;
            }
            (Err(Error::InvalidSetting { .. }), None) => {}
            (found, expected) => panic!("{}: {found:?}, expected {expected:?}", new.text()),
        }
    }

    fn synchronized(&mut self, done: Result<()>, streams: impl IntoIterator<Item = u32>) {
        match done {
            Ok(()) => streams.into_iter().for_each(|stream| self.model.streams.synchronized(stream)),
            Err(_) => self.model.unsure(),
        }
    }

    /// Frees everything. The device must then be empty, and all of its memory allocatable.
    pub(crate) fn finish(mut self) {
        self.step(&Op::FailAllocs(0));
        (0..STREAMS).for_each(|stream| self.step(&Op::Release(stream)));
        while let Some(start) = self.chosen(0) {
            self.free(start);
            self.check();
        }
        let plain =
            Settings { caching: Some(true), throw_on_oom: Some(false), expandable: Some(false), ..Settings::default() };
        self.step(&Op::Configure(plain));
        self.step(&Op::EmptyCache);
        assert_eq!(self.accelerator.backend().used(), 0, "the device is not empty");
        assert!(self.model.segments.is_empty() && self.model.entries.is_empty());
        self.limit_is_exact();
    }

    /// Checks that the charged memory has not drifted: with a fraction of 0.5, exactly half of the device can be
    /// allocated.
    fn limit_is_exact(&mut self) {
        self.step(&Op::SetFraction(0.5));
        let half = self.capacity / 2 / (2 * accelerator_core::MIB) * (2 * accelerator_core::MIB);
        self.step(&Op::Allocate { bytes: half, stream: 0 });
        assert_eq!(self.allocations.len(), 1, "half of the device could not be allocated");
        self.step(&Op::Allocate { bytes: half, stream: 0 });
        assert_eq!(self.allocations.len(), 1, "more than half of the device was allocated");
        self.step(&Op::Free { nth: 0 });
    }

    fn chosen(&self, nth: usize) -> Option<u64> {
        let count = self.allocations.len();
        (count > 0).then(|| *self.allocations.keys().nth(nth % count).unwrap())
    }
}
