use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, Allocation, DevicePtr, Error, MemPoolId, Result, Snapshot, Stream};

use super::captures::Captures;
use super::checkpoints::Checkpoint;
use super::outcome::{Outcome, ReplayError, Segments};
use super::pauses::Pauses;
use super::pools::Pools;
use crate::trace::{Line, Op, PoolName};

/// The memory that an allocation needs for its block and in the replayer, in bytes.
pub(crate) const MEMORY_OF_ALLOCATION: u64 = 256;

/// Replays the lines of one trace on one device.
pub struct Replayer<B: Controls> {
    pub(super) accelerator: &'static Accelerator<B>,
    streams: HashMap<u32, Stream<B>>,
    pub(super) live: HashMap<u64, Live<B>>,
    pub(super) pools: Pools<B>,
    pub(super) pauses: Pauses<B>,
    pub(super) captures: Captures<B>,
    pub(super) checkpoints: HashMap<(PoolName, String), Checkpoint>,
    /// The lowest address so far, from which the pointers of `alloc_at` are counted.
    lowest: Option<B::Ptr>,
    /// Whether any allocation was used by a second stream.
    pub(super) shared: bool,
    expandable: Option<Expandable>,
    pub(super) stopwatch: Stopwatch,
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
pub(super) struct Stopwatch {
    pub(super) operations: u64,
    pub(super) total: Option<Duration>,
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
pub(super) enum Live<B: Controls> {
    Allocated(Allocation<B>),
    /// The allocation had zero bytes or got no memory.
    Nothing,
}

impl<B: Controls> Live<B> {
    pub(super) fn address(&self) -> Option<u64> {
        match self {
            Self::Allocated(allocation) => Some(allocation.ptr().trace_address()),
            Self::Nothing => None,
        }
    }
}

impl<B: Controls> Replayer<B> {
    /// Creates a replay on this device. With `timed`, [`step`](Self::step) measures the time of each allocator
    /// operation.
    pub fn new(accelerator: &'static Accelerator<B>, timed: bool) -> Self {
        let streams = HashMap::from([(0, accelerator.default_stream())]);
        let stopwatch = Stopwatch { operations: 0, total: timed.then_some(Duration::ZERO) };
        let mut replayer = Self {
            accelerator,
            streams,
            live: HashMap::new(),
            pools: Pools::new(),
            pauses: Pauses::new(),
            captures: Captures::new(),
            checkpoints: HashMap::new(),
            lowest: None,
            shared: false,
            expandable: None,
            stopwatch,
        };
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

    /// Gives up captures, frees the remaining allocations and releases the pools and the cache to the driver, for other
    /// users of the device.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn end(mut self) -> Result<()> {
        let allocator = self.accelerator.allocator();
        self.captures.end();
        self.accelerator.set_current_stream(self.accelerator.default_stream())?;
        for (_, live) in self.live.drain() {
            if let Live::Allocated(allocation) = live {
                allocator.free(allocation)?;
            }
        }
        self.pauses.end();
        self.pools.end(allocator);
        self.accelerator.synchronize()?;
        allocator.empty_cache()
    }

    /// Replays one line.
    ///
    /// # Errors
    /// [`ReplayError`]. The device is then unchanged.
    pub fn step(&mut self, line: &Line) -> Result<Outcome, ReplayError> {
        let outcome = self.replay(line)?;
        if matches!(line.op, Op::Free { .. } | Op::Release { .. }) {
            self.settle();
        }
        Ok(outcome)
    }

    /// Ensures that events that are complete according to the trace format are complete when the next line polls them.
    pub(super) fn settle(&self) {
        if self.shared {
            self.accelerator.backend().settle();
        }
    }

    fn replay(&mut self, line: &Line) -> Result<Outcome, ReplayError> {
        let allocator = self.accelerator.allocator();
        let backend = self.accelerator.backend();
        match &line.op {
            Op::Alloc { id, bytes, stream } => return self.alloc(*id, *bytes, *stream),
            Op::AllocAt { id, bytes, offset, stream } => return self.alloc_at(*id, *bytes, *offset, *stream),
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
            Op::Stats => return Ok(Outcome::Statistics(self.statistics())),
            Op::Snapshot => return Ok(self.segments(None, allocator.snapshot())),
            Op::MemInfo => return Ok(Outcome::MemoryInfo(self.accelerator.memory_info()?)),
            Op::CacheInfo => return Ok(Outcome::LargestAvailable(allocator.largest_available()?)),
            Op::Calls => return Ok(Outcome::Calls(backend.calls().made().collect(), self.pools.calls())),
            Op::Pool(op) => return self.pool_op(op),
            Op::Capture(op) => self.capture_op(op)?,
        }
        Ok(Outcome::Done)
    }

    /// All values under PyTorch's keys, sorted by key.
    fn statistics(&self) -> Vec<(String, i64)> {
        let allocator = self.accelerator.allocator();
        let mut entries = allocator.statistics().entries();
        for (pool, reserved) in allocator.reserved_by_private_pools() {
            entries.extend(reserved.entries(&format!("reserved_bytes_by_private_pools.{pool}")));
        }
        entries.sort_unstable();
        entries
    }

    pub(super) fn segments(&self, pool: Option<MemPoolId>, snapshot: Snapshot) -> Outcome {
        let streams = self.streams.iter().map(|(number, stream)| (stream.id().get(), *number)).collect();
        Outcome::Snapshot(Box::new(Segments { pool, snapshot, streams, base: B::BASE }))
    }

    fn alloc(&mut self, id: u64, bytes: u64, stream: u32) -> Result<Outcome, ReplayError> {
        let stream = self.stream(stream)?;
        let allocator = self.accelerator.allocator();
        self.alloc_by(id, bytes, |bytes| allocator.allocate(bytes, stream).map(Some))
    }

    fn alloc_at(&mut self, id: u64, bytes: u64, offset: u64, stream: u32) -> Result<Outcome, ReplayError> {
        let stream = self.stream(stream)?;
        let allocator = self.accelerator.allocator();
        let address = offset.wrapping_add(B::BASE);
        let ptr = self.lowest.and_then(|lowest| {
            let ptr = lowest.offset(address.checked_sub(lowest.trace_address())?);
            (ptr.trace_address() == address).then_some(ptr)
        });
        let allocate = |bytes| ptr.map_or(Ok(None), |ptr| allocator.allocate_at(ptr, bytes, stream));
        self.alloc_by(id, bytes, allocate)
    }

    fn alloc_by(
        &mut self,
        id: u64,
        bytes: u64,
        allocate: impl FnOnce(NonZeroU64) -> Result<Option<Allocation<B>>>,
    ) -> Result<Outcome, ReplayError> {
        if self.live.contains_key(&id) {
            return Err(ReplayError::LiveAlready(id));
        }
        let Some(bytes) = NonZeroU64::new(bytes) else {
            self.stopwatch.operations += 1;
            self.live.insert(id, Live::Nothing);
            return Ok(Outcome::Null(id));
        };
        let (live, outcome) = match self.stopwatch.time(|| allocate(bytes)) {
            Ok(Some(allocation)) => {
                let ptr = allocation.ptr();
                self.lowest = self.lowest.into_iter().chain([ptr]).min_by_key(|ptr| ptr.trace_address());
                (Live::Allocated(allocation), Outcome::Placed(id, ptr.trace_address().wrapping_sub(B::BASE)))
            }
            Ok(None) => (Live::Nothing, Outcome::Unplaced(id)),
            Err(Error::OutOfMemory(_)) => (Live::Nothing, Outcome::OutOfMemory(id)),
            Err(error) => return Err(error.into()),
        };
        self.live.insert(id, live);
        Ok(outcome)
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

    pub(super) fn stream(&mut self, number: u32) -> Result<Stream<B>> {
        if let Some(stream) = self.streams.get(&number) {
            return Ok(*stream);
        }
        let stream = self.accelerator.dedicated_stream(0)?;
        self.streams.insert(number, stream);
        Ok(stream)
    }
}
