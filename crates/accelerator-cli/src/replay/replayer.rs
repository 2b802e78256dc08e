use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, Allocation, DevicePtr, Error, MemoryInfo, Result, Snapshot, Statistics, Stream};

use crate::trace::{Line, Op};

/// The memory that an allocation needs for its block and in the replayer, in bytes.
pub(crate) const MEMORY_OF_ALLOCATION: u64 = 256;

/// Replays the lines of one trace on one device.
pub struct Replayer<B: Controls> {
    accelerator: &'static Accelerator<B>,
    streams: HashMap<u32, Stream<B>>,
    live: HashMap<u64, Live<B>>,
    /// Whether any allocation was used by a second stream.
    shared: bool,
    expandable: Option<Expandable>,
    stopwatch: Stopwatch,
}

/// Whether requested expandable segments were available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expandable {
    /// Memory came from them.
    InUse,
    /// The device has no virtual memory, so memory came from segments of fixed size.
    NotToBeHad,
}

/// Counts the allocator operations, and optionally measures their time.
struct Stopwatch {
    operations: u64,
    total: Option<Duration>,
}

impl Stopwatch {
    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        self.operations += 1;
        let Some(total) = &mut self.total else { return operation() };
        let start = Instant::now();
        let result = operation();
        *total += start.elapsed();
        result
    }
}

/// The result of an `alloc` line.
enum Live<B: Controls> {
    Allocated(Allocation<B>),
    /// The allocation had zero bytes or ran out of memory.
    Nothing,
}

/// The outcome of a line.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing to show.
    Done,
    /// An allocation failed for lack of memory.
    OutOfMemory(u64),
    /// An allocation of zero bytes.
    Null(u64),
    /// An allocation, and its offset from the device's first address.
    Placed(u64, u64),
    /// `stats`.
    Statistics(Box<Statistics>),
    /// `snapshot`, with the stream numbers of the trace and the device's first address.
    Snapshot(Snapshot, HashMap<u32, u32>, u64),
    /// `meminfo`.
    MemoryInfo(MemoryInfo),
    /// `cacheinfo`.
    LargestAvailable(u64),
    /// `calls`.
    Calls(Vec<(&'static str, u64)>),
}

/// Why a line cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An `alloc` line names an allocation that is live.
    #[error("allocation {0} is already live")]
    LiveAlready(u64),
    /// A line names an allocation that was freed, or never made.
    #[error("allocation {0} is not live: it was already freed or never made")]
    NotLive(u64),
    /// The library returned an error.
    #[error(transparent)]
    Accelerator(#[from] Error),
}

impl<B: Controls> Replayer<B> {
    /// Creates a replay on this device. With `timed`, it measures the time of the allocator operations.
    pub fn new(accelerator: &'static Accelerator<B>, timed: bool) -> Self {
        let streams = HashMap::from([(0, accelerator.default_stream())]);
        let stopwatch = Stopwatch { operations: 0, total: timed.then_some(Duration::ZERO) };
        let mut replayer =
            Self { accelerator, streams, live: HashMap::new(), shared: false, expandable: None, stopwatch };
        replayer.note_expandable();
        replayer
    }

    /// Returns whether expandable segments were available, or `None` if they were never requested.
    pub fn expandable(&self) -> Option<Expandable> {
        self.expandable
    }

    fn note_expandable(&mut self) {
        let allocator = self.accelerator.allocator();
        if allocator.config().expandable_segments {
            let in_use = allocator.statistics().expandable_segments;
            self.expandable = Some(if in_use { Expandable::InUse } else { Expandable::NotToBeHad });
        }
    }

    /// Returns the device.
    pub fn accelerator(&self) -> &'static Accelerator<B> {
        self.accelerator
    }

    /// Returns the number of allocator operations so far, and their time if it was measured.
    pub fn operations(&self) -> (u64, Option<Duration>) {
        (self.stopwatch.operations, self.stopwatch.total)
    }

    /// Frees the remaining allocations and releases the cache to the driver, for other users of the device.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn end(mut self) -> Result<()> {
        let allocator = self.accelerator.allocator();
        for (_, live) in self.live.drain() {
            if let Live::Allocated(allocation) = live {
                allocator.free(allocation)?;
            }
        }
        self.accelerator.synchronize()?;
        allocator.empty_cache()
    }

    /// Replays one line.
    ///
    /// # Errors
    /// [`ReplayError`]. The device is then unchanged.
    pub fn step(&mut self, line: &Line) -> Result<Outcome, ReplayError> {
        let outcome = self.replay(line)?;
        if self.shared && matches!(line.op, Op::Free { .. } | Op::Release { .. }) {
            // Events that are complete according to the trace format must be complete when the next line polls them.
            self.accelerator.backend().settle();
        }
        Ok(outcome)
    }

    fn replay(&mut self, line: &Line) -> Result<Outcome, ReplayError> {
        let allocator = self.accelerator.allocator();
        let backend = self.accelerator.backend();
        match &line.op {
            Op::Alloc { id, bytes, stream } => return self.alloc(*id, *bytes, *stream),
            Op::Free { id } => self.free(*id)?,
            Op::Record { id, stream } => self.record(*id, *stream)?,
            Op::Hold { stream } => backend.hold(self.stream(*stream)?.native()),
            Op::Release { stream } => backend.release(self.stream(*stream)?.native()),
            Op::Sync => self.accelerator.synchronize()?,
            Op::EmptyCache => allocator.empty_cache()?,
            Op::ResetPeak => allocator.reset_peak_statistics(),
            Op::ResetAccumulated => allocator.reset_accumulated_statistics(),
            Op::Capacity { bytes } => backend.set_capacity(*bytes),
            Op::Conf { settings } => {
                allocator.set_config(allocator.config().updated(settings)?);
                self.note_expandable();
            }
            Op::Fraction { fraction } => allocator.set_memory_fraction(*fraction)?,
            Op::FailMallocs { count } => backend.fail_allocs(*count),
            Op::Stats => return Ok(Outcome::Statistics(Box::new(allocator.statistics()))),
            Op::Snapshot => {
                let numbers = self.streams.iter().map(|(number, stream)| (stream.id().get(), *number));
                return Ok(Outcome::Snapshot(allocator.snapshot(), numbers.collect(), B::BASE));
            }
            Op::MemInfo => return Ok(Outcome::MemoryInfo(self.accelerator.memory_info()?)),
            Op::CacheInfo => return Ok(Outcome::LargestAvailable(allocator.largest_available()?)),
            Op::Calls => return Ok(Outcome::Calls(backend.calls().made().collect())),
        }
        Ok(Outcome::Done)
    }

    fn alloc(&mut self, id: u64, bytes: u64, stream: u32) -> Result<Outcome, ReplayError> {
        if self.live.contains_key(&id) {
            return Err(ReplayError::LiveAlready(id));
        }
        let stream = self.stream(stream)?;
        let Some(bytes) = NonZeroU64::new(bytes) else {
            self.stopwatch.operations += 1;
            self.live.insert(id, Live::Nothing);
            return Ok(Outcome::Null(id));
        };
        let allocator = self.accelerator.allocator();
        match self.stopwatch.time(|| allocator.allocate(bytes, stream)) {
            Ok(allocation) => {
                let place = allocation.ptr().trace_address().wrapping_sub(B::BASE);
                self.live.insert(id, Live::Allocated(allocation));
                Ok(Outcome::Placed(id, place))
            }
            Err(Error::OutOfMemory(_)) => {
                self.live.insert(id, Live::Nothing);
                Ok(Outcome::OutOfMemory(id))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn free(&mut self, id: u64) -> Result<(), ReplayError> {
        let allocator = self.accelerator.allocator();
        match self.live.remove(&id).ok_or(ReplayError::NotLive(id))? {
            Live::Allocated(allocation) => {
                Ok(self.stopwatch.time(|| allocator.free(allocation)).map_err(Error::from)?)
            }
            Live::Nothing => Ok(()),
        }
    }

    fn record(&mut self, id: u64, stream: u32) -> Result<(), ReplayError> {
        let stream = self.stream(stream)?;
        self.shared = true;
        let allocator = self.accelerator.allocator();
        match self.live.get(&id).ok_or(ReplayError::NotLive(id))? {
            Live::Allocated(allocation) => Ok(self.stopwatch.time(|| allocator.record_use(allocation, stream))?),
            Live::Nothing => Ok(()),
        }
    }

    fn stream(&mut self, number: u32) -> Result<Stream<B>> {
        if let Some(stream) = self.streams.get(&number) {
            return Ok(*stream);
        }
        let stream = self.accelerator.dedicated_stream(0)?;
        self.streams.insert(number, stream);
        Ok(stream)
    }
}
