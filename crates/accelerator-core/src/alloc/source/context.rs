//! What every source works with: the driver, the arenas, and charges for what is being asked for.

use std::num::NonZeroU64;

use crate::alloc::arena::{Arena, DetachedSegment};
use crate::alloc::arenas::Arenas;
use crate::alloc::driver::Driver;
use crate::alloc::history::{HistoryAction, Subject};
use crate::alloc::settings::{TOO_LARGE, share};
use crate::alloc::stats::DeviceStatistics;
use crate::backend::DriverResult;
use crate::sync::{InFlight, OwnedLock, Step};
use crate::types::{
    Device, DriverError, DriverErrorKind, Error, OutOfMemoryCause, Result, StreamId, TraceAction,
};

/// The driver of a device and its arenas.
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) arenas: Arenas,
    /// Memory on its way back to the driver.
    returning: InFlight,
    /// Charged memory that the driver is being asked for.
    asking: InFlight,
}

/// Bytes that are set aside while the driver is being asked for them. What was not [used](Self::use_up) is given back on drop.
#[must_use]
pub(crate) struct Charge<'a> {
    context: &'a Context,
    bytes: u64,
    _asking: Step<'a>,
}

impl Charge<'_> {
    /// The driver gave so many bytes: as many of the charge, as far as it goes, are counted as reserved from now on.
    pub(crate) fn use_up(&mut self, bytes: u64) -> u64 {
        let used = bytes.min(self.bytes);
        self.bytes -= used;
        used
    }

    /// As [`use_up`](Self::use_up), where what is counted charges itself.
    pub(crate) fn use_up_and_refund(&mut self, statistics: &mut DeviceStatistics, bytes: u64) {
        let used = self.use_up(bytes);
        statistics.refund(used);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.context.arenas.statistics().refund(self.bytes);
        }
    }
}

/// Why no memory came from a source.
pub(crate) enum Failure {
    /// Lack of memory: the next rung may help.
    Refused(OutOfMemoryCause),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Context {
    pub(crate) fn new(device: Device, driver: Box<dyn Driver>, arenas: Arenas) -> Self {
        Self { device, driver, arenas, returning: InFlight::default(), asking: InFlight::default() }
    }

    pub(crate) fn error(&self, source: DriverError) -> Error {
        Error::Driver { device: self.device, source }
    }

    /// Sets bytes aside that the driver is to be asked for.
    pub(crate) fn charge(&self, arena: StreamId, bytes: u64) -> Result<Charge<'_>, Failure> {
        let mut statistics = self.arenas.statistics();
        if !statistics.charge(bytes) {
            let limit = statistics.limit();
            let cause = limit.map_or(OutOfMemoryCause::Device, |_| OutOfMemoryCause::Limit);
            return Err(Failure::Refused(cause));
        }
        let mut charge = Charge { context: self, bytes, _asking: self.asking.begin() };
        drop(statistics);
        match self.rejects_ahead_of_driver(arena, &mut charge) {
            true => Err(Failure::Refused(OutOfMemoryCause::Rejected)),
            false => Ok(charge),
        }
    }

    /// With `throw_on_cudamalloc_oom`, whether what is charged exceeds the share of the device that the settings, as they are
    /// now, allow. The charge is taken back then, before another thread looks.
    fn rejects_ahead_of_driver(&self, arena: StreamId, charge: &mut Charge<'_>) -> bool {
        let config = *self.arenas.of(arena).lock().config();
        let allowed = share(config.memory_fraction, self.driver.properties().total_memory);
        let mut statistics = self.arenas.statistics();
        let rejects = config.reject_ahead_of_driver && statistics.charged() > allowed;
        if rejects {
            charge.use_up_and_refund(&mut statistics, u64::MAX);
        }
        rejects
    }

    /// The driver would not give memory that was charged. Lack of memory has this cause, and the history notes it.
    pub(crate) fn refused(&self, error: DriverError, cause: OutOfMemoryCause) -> Failure {
        match self.failure(error, cause) {
            Failure::Refused(cause) => self.refused_for(cause),
            failure => failure,
        }
    }

    /// The driver would not do something. Lack of memory has this cause.
    pub(crate) fn failure(&self, error: DriverError, cause: OutOfMemoryCause) -> Failure {
        match error.kind {
            DriverErrorKind::OutOfMemory => Failure::Refused(cause),
            _ => Failure::Error(self.error(error)),
        }
    }

    /// As [`refused`](Self::refused), of a segment.
    pub(crate) fn segment_refused(&self, error: DriverError) -> Failure {
        if error.kind == DriverErrorKind::AllocationTooLarge {
            let largest = self.driver.properties().largest_allocation;
            return self.refused_for(OutOfMemoryCause::AllocationTooLarge { largest, driver: error });
        }
        self.refused(error, OutOfMemoryCause::Device)
    }

    /// There is no memory to ask the driver for. As where that refuses, the history notes it.
    pub(crate) fn refused_for(&self, cause: OutOfMemoryCause) -> Failure {
        self.arenas.statistics().note(|| HistoryAction::Refused);
        Failure::Refused(cause)
    }

    /// Waits for those that have charged memory and are asking for it.
    pub(crate) fn wait_for_charges(&self) {
        self.asking.wait();
    }

    /// A step begins in which memory goes back.
    pub(crate) fn begin_returning(&self) -> Step<'_> {
        self.returning.begin()
    }

    /// Waits for what other threads are giving back.
    pub(crate) fn wait_for_returns(&self) {
        self.returning.wait();
    }

    /// Takes segments out of an arena, and gives them back to the driver outside its lock. Bytes that went back.
    pub(crate) fn give_back(
        &self,
        arena: &OwnedLock<Arena>,
        detach: impl FnOnce(&mut Arena) -> Vec<DetachedSegment>,
    ) -> u64 {
        let (config, segments) = {
            let mut arena = arena.lock();
            let segments = detach(&mut arena);
            let segments: Vec<_> =
                segments.into_iter().map(|segment| (segment, self.returning.begin())).collect();
            let mut statistics = self.arenas.statistics();
            if let Some(recorder) = &mut statistics.recorder {
                // Ahead of the driver, which may give the same address to somebody else at once.
                for (DetachedSegment { base, size, stream, .. }, _) in &segments {
                    let subject = Subject { address: base.address(), size: *size, stream: *stream };
                    recorder.memory_left(TraceAction::SegmentFree, subject);
                }
            }
            (*arena.config(), segments)
        };
        let mut bytes = 0;
        for (detached, _returning) in segments {
            let (pool, size) = (detached.pool, detached.size);
            self.driver.dealloc(detached);
            self.arenas.statistics().segment_released(&config, pool, size);
            bytes += size;
        }
        bytes
    }

    /// Bytes of address space to reserve, in whole pages: 9/8 of the device's memory; `None`: they do not fit into 64 bits.
    pub(crate) fn reservation_size(&self, page: NonZeroU64) -> Option<u64> {
        let total = self.driver.properties().total_memory.min(TOO_LARGE);
        (total + total / 8).checked_next_multiple_of(page.get())
    }

    /// Waits until the work of a stream is over that it was given so far: drivers unmap without waiting. False: it is being
    /// captured, so it cannot be waited for.
    pub(crate) fn wait_for_work(&self, stream: StreamId) -> DriverResult<bool> {
        let Some(event) = self.driver.record(stream)? else { return Ok(false) };
        let waited = self.driver.wait_until_over(event);
        if waited.is_err() {
            self.driver.take_back(event); // to be recorded again
        }
        waited.map(|()| true)
    }
}
