//! Runs a program on the allocator, records what is expected, and checks after every step.

use std::num::NonZeroU64;

use accelerator_conformance::Call;
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, DevicePtr, Error, KIB, MIB, OutOfMemory, OutOfMemoryCause, Stream,
};

use super::expected::{Entry, Expected, Simulated};
use crate::model::program::{Op, Program, STREAMS};
use crate::model::settings::{InForce, Settings};

/// What the statistics count since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) served: i64,
    pub(super) ooms: i64,
    pub(super) rejections: i64,
}

pub(crate) struct Machine<B: Simulated> {
    pub(super) accelerator: &'static Accelerator<B>,
    streams: Vec<Stream<B>>,
    pub(super) expected: Expected<B>,
    pub(super) counted: Counted,
    settings: InForce,
    capacity: u64,
    fraction: f64,
    failing_allocs: u64,
    is_compact: bool,
    /// Whether the policy has always been `compact`.
    was_compact_only: bool,
    was_expandable: bool,
    /// The number of steps that found blocks in alias ranges.
    pub(crate) aliased: u64,
}

impl<B: Simulated> Machine<B> {
    /// `follows_work`: whether it records events to find out which work is over.
    pub(crate) fn new(driver: B, capacity: u64, follows_work: bool) -> Self {
        let accelerator = Accelerator::new(driver, 0, AllocatorConfig::default()).unwrap();
        let mut streams = vec![accelerator.default_stream()];
        streams.extend((1..STREAMS).map(|_| accelerator.stream(0).unwrap()));
        Self {
            accelerator,
            streams,
            expected: Expected::new(follows_work),
            counted: Counted::default(),
            settings: InForce::default(),
            capacity,
            fraction: 1.0,
            failing_allocs: 0,
            is_compact: false,
            was_compact_only: true,
            was_expandable: false,
            aliased: 0,
        }
    }

    pub(crate) fn driver(&self) -> &'static B {
        self.accelerator.backend()
    }

    pub(crate) fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
            self.check();
        }
    }

    fn step(&mut self, op: &Op) {
        let (allocator, driver) = (self.accelerator.allocator(), self.driver());
        let faults = driver.faults();
        let allowed = |result: accelerator_core::Result<()>| {
            assert!(result.is_ok() || driver.faults() > faults, "{op:?}: {result:?}");
        };
        match op {
            Op::Allocate { bytes, stream } => self.allocate(*bytes, *stream),
            Op::Free { nth } => self.chosen(*nth).into_iter().for_each(|start| self.free(start)),
            Op::RecordUse { nth, stream } => {
                let Some(start) = self.chosen(*nth) else { return };
                let (entry, allocation) = self.expected.live.get_mut(&start).unwrap();
                allocator.record_use(allocation, self.streams[*stream as usize]).unwrap();
                if *stream != entry.stream && !entry.users.contains(stream) {
                    entry.users.push(*stream);
                }
            }
            Op::Hold(stream) => driver.hold(self.streams[*stream as usize].native()),
            Op::Release(stream) => driver.release(self.streams[*stream as usize].native()),
            Op::Synchronize(stream) => allowed(self.streams[*stream as usize].synchronize()),
            Op::SynchronizeAll => allowed(self.accelerator.synchronize()),
            Op::EmptyCache => allowed(allocator.empty_cache()),
            Op::ResetPeaks => allocator.reset_peak_statistics(),
            Op::ResetAccumulated => {
                allocator.reset_accumulated_statistics();
                self.counted = Counted::default();
            }
            Op::Configure(settings) => self.configure(settings),
            Op::SetFraction(fraction) => {
                allocator.set_memory_fraction(*fraction).unwrap();
                self.fraction = *fraction;
            }
            Op::FailAllocs(count) => {
                driver.fail_allocs(*count);
                self.failing_allocs = *count;
            }
        }
    }

    fn allocate(&mut self, bytes: u64, stream: u32) {
        let driver = self.driver();
        let asked = || driver.calls().of(Call::Alloc) + driver.calls().of(Call::Create);
        let (asked_before, faults) = (asked(), driver.faults());
        let requested = NonZeroU64::new(bytes).unwrap();
        let result = self.accelerator.allocator().allocate(requested, self.streams[stream as usize]);
        let injected = self.failing_allocs > 0 || driver.faults() > faults;
        self.failing_allocs = self.failing_allocs.saturating_sub(asked() - asked_before);
        match result {
            Ok(allocation) => {
                let entry = self.entry(&allocation);
                assert_eq!((entry.requested, entry.stream), (bytes, stream));
                self.counted.served += 1;
                self.expected.allocated(driver, self.streams[stream as usize], entry, allocation);
            }
            Err(Error::OutOfMemory(report)) => self.check_report(&report, bytes, injected),
            Err(error) => assert!(driver.faults() > faults, "{error}"),
        }
    }

    /// Checks that an allocation matches the request, and returns its block.
    fn entry(&self, allocation: &Allocation<B>) -> Entry {
        let (start, size) = (allocation.ptr().trace_address(), allocation.size());
        let requested = allocation.requested().get();
        let expected = self.settings.expected(requested);
        let is_compact = self.is_compact && self.settings.caching;
        let small = if is_compact { expected.rounded <= 64 * KIB } else { expected.small };
        assert!(start.is_multiple_of(512), "not aligned: {allocation:?}");
        match is_compact {
            true => assert_eq!(size, expected.rounded, "{allocation:?}"),
            false => assert!(size >= expected.rounded, "{allocation:?}"),
        }
        let memory = self.driver().sim().physical(start, size);
        let memory = memory.unwrap_or_else(|| panic!("without memory: {allocation:?}"));
        let stream = allocation.stream().id().get();
        Entry { start, size, requested, stream, small, users: Vec::new(), memory }
    }

    fn check_report(&mut self, report: &OutOfMemory, bytes: u64, injected: bool) {
        match report.cause {
            OutOfMemoryCause::TooLarge => return assert!(bytes >= 1 << 60),
            OutOfMemoryCause::Rejected => self.counted.rejections += 1,
            _ => self.counted.ooms += 1,
        }
        let waited = matches!(report.cause, OutOfMemoryCause::Limit | OutOfMemoryCause::Device);
        if !waited || injected {
            return;
        }
        let statistics = self.accelerator.allocator().statistics();
        let [active, allocated] = [statistics.active, statistics.allocation].map(|stat| stat.all.current);
        let rounded = self.settings.expected(bytes).rounded;
        let waits = rounded <= self.capacity; // larger requests are refused immediately
        assert!(active == allocated || !waits, "failed without waiting for the streams: {report}");
        let limit = (self.fraction * self.capacity as f64) as u64;
        let limit = if self.fraction < 1.0 { limit } else { self.capacity };
        // Memory is allocated in units of at least 2 MiB, or of up to 40 MiB under the other policy.
        let page = if self.was_compact_only { 2 * MIB } else { 40 * MIB };
        assert!(
            report.reserved + rounded.next_multiple_of(2 * MIB) + page > limit,
            "failed although it fits: {report}"
        );
        if self.was_compact_only && rounded > 64 * KIB {
            let row = self.longest_free_row();
            assert!(row < rounded, "failed although {row} adjacent bytes are free: {report}");
        }
    }

    fn free(&mut self, start: u64) {
        let driver = self.driver();
        self.expected.note_work(driver, &self.streams, start);
        let (entry, allocation) = self.expected.live.remove(&start).unwrap();
        self.accelerator.allocator().free(allocation).unwrap();
        if !entry.users.is_empty() {
            self.expected.pending.push(entry);
        }
    }

    fn configure(&mut self, new: &Settings) {
        let allocator = self.accelerator.allocator();
        match (allocator.config().updated(&new.text()), self.settings.after(new)) {
            (Ok(config), Some(settings)) => {
                allocator.set_config(config);
                self.settings = settings;
                self.is_compact = new.compact.unwrap_or(self.is_compact);
                let others = !self.is_compact || !self.settings.caching;
                self.was_compact_only &= !others;
                self.was_expandable |= self.settings.expandable;
                self.expected.waits_on_device |= self.settings.device_side_reuse;
            }
            (Err(Error::InvalidSetting { .. }), None) => {}
            (found, expected) => panic!("{}: {found:?}, expected {expected:?}", new.text()),
        }
    }

    /// Frees everything. The device must then be empty, and all of its memory allocatable.
    pub(crate) fn finish(mut self) {
        let driver = self.driver();
        let releases = (0..STREAMS).map(Op::Release);
        self.run(&releases.chain([Op::FailAllocs(0)]).collect::<Vec<_>>());
        while let Some(start) = self.chosen(0) {
            self.free(start);
            self.check();
        }
        self.run(&[Op::EmptyCache]);
        assert_eq!((driver.used(), driver.sim().used()), (0, 0), "the device is not empty");
        let snapshot = self.accelerator.allocator().snapshot();
        assert_eq!((snapshot.segments.len(), snapshot.aliases.len()), (0, 0), "{snapshot:?}");
        assert_eq!(self.expected.active().count(), 0);
        self.check_calls();
        self.limit_is_exact();
    }

    /// Checks that everything allocated from the driver was released.
    fn check_calls(&self) {
        let driver = self.driver();
        // Failed calls are counted as well, and an expandable segment without pages keeps its addresses.
        if driver.faults() > 0 || self.was_expandable {
            return;
        }
        for (taken, given_back) in [(Call::Map, Call::Unmap), (Call::Reserve, Call::Release)] {
            let counts = [taken, given_back].map(|call| driver.calls().of(call));
            assert_eq!(counts[0], counts[1], "{taken:?} and {given_back:?}");
        }
    }

    /// Checks that the charged memory has not drifted: with a fraction of a sixteenth, exactly a sixteenth of the
    /// device can be allocated. It is that little because every program ends with this check, and each 2 MiB are a
    /// separate chunk.
    fn limit_is_exact(&mut self) {
        let plain = Settings {
            caching: Some(true),
            throw_on_oom: Some(false),
            expandable: Some(false),
            compact: Some(true),
            ..Settings::default()
        };
        let part = Op::Allocate { bytes: self.capacity / 32 / MIB * 2 * MIB, stream: 0 };
        self.run(&[Op::Configure(plain), Op::SetFraction(1.0 / 16.0), part.clone()]);
        assert_eq!(self.expected.live.len(), 1, "a sixteenth of the device could not be allocated");
        self.run(&[part]);
        assert_eq!(self.expected.live.len(), 1, "more than a sixteenth of the device was allocated");
        self.run(&[Op::Free { nth: 0 }]);
    }

    fn chosen(&self, nth: usize) -> Option<u64> {
        let count = self.expected.live.len();
        (count > 0).then(|| *self.expected.live.keys().nth(nth % count).unwrap())
    }
}

/// For programs with failing driver calls. None of the calls are the test's own.
impl<B: Simulated> crate::Subject<B> for Machine<B> {
    fn new(driver: B, program: &Program) -> Self {
        Self::new(driver, program.capacity, false)
    }

    fn driver(&self) -> &'static B {
        self.driver()
    }

    fn run(&mut self, ops: &[Op]) {
        self.run(ops);
    }
}
