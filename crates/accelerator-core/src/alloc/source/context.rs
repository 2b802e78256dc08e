//! What every source uses: the driver, the arenas, and charges for memory that is being requested.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::turns::Turns;
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId, DetachedSegment};
use crate::alloc::arenas::{Arenas, Entered, Parameters};
use crate::alloc::blocks::{Base, Segment, SegmentId};
use crate::alloc::driver::{AddressSpace, Driver, Mappings};
use crate::alloc::history::{HistoryAction, Subject};
use crate::alloc::settings::{TOO_LARGE, share};
use crate::event::Events;
use crate::sync::{Guard, InFlight, Step};
use crate::types::{
    Device, DriverError, DriverErrorKind, DriverResult, Error, OutOfMemoryCause, Result, StreamId, TraceAction,
};

/// The driver of a device, and its arenas.
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) events: Box<dyn Events>,
    pub(crate) arenas: Arenas,
    /// Memory on its way back to the driver.
    pub(crate) returning: InFlight,
    /// Charged memory that is being requested from the driver.
    pub(crate) requesting: InFlight,
    /// The turns of the threads that take pages.
    pub(super) turns: Turns,
}

/// Reserves a range of `len` bytes. If there is too little address space, the range is half as long, and so on, and
/// last as long as `least` bytes need. Returns its start and length. All lengths are whole pages.
fn reserve_up_to(
    driver: &dyn AddressSpace,
    mut len: NonZeroU64,
    least: u64,
    page: NonZeroU64,
) -> DriverResult<(Base, NonZeroU64)> {
    let least = least.div_ceil(page.get()).saturating_mul(page.get());
    loop {
        let error = match driver.reserve(len) {
            Ok(base) => return Ok((base, len)),
            Err(error) => error,
        };
        let shorter = NonZeroU64::new((len.get() / 2 / page * page.get()).max(least)).filter(|shorter| *shorter < len);
        let Some(shorter) = shorter.filter(|_| error.kind == DriverErrorKind::OutOfMemory) else { return Err(error) };
        len = shorter;
    }
}

/// Bytes that are charged while they are being requested from the driver. Those not [used up](Self::use_up) are
/// refunded on drop.
#[must_use]
pub(crate) struct Charge<'a> {
    context: &'a Context,
    bytes: u64,
    _requesting: Step<'a>,
}

impl Charge<'_> {
    /// Uses up this many bytes of the charge, as far as it suffices, because the driver returned the memory. Returns
    /// how many; they now count as reserved.
    pub(crate) fn use_up(&mut self, bytes: u64) -> u64 {
        let used = bytes.min(self.bytes);
        self.bytes -= used;
        used
    }

    /// Charges more bytes, within the same limits.
    pub(super) fn extend(&mut self, arena: ArenaId, bytes: u64) -> Grown<()> {
        let mut more = self.context.charge(arena, bytes)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.context.arenas.statistics().refund(self.bytes);
        }
    }
}

/// The reason why a source returned no memory.
pub(crate) enum Failure {
    /// Lack of memory, so the next rung may help.
    Refused(OutOfMemoryCause),
    Error(Error),
}

/// The result of a step towards new memory, of which the last returns the block.
pub(crate) type Grown<T = AllocatedBlock> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Context {
    pub(crate) fn new(device: Device, driver: Box<dyn Driver>, events: Box<dyn Events>, arenas: Arenas) -> Self {
        let [returning, requesting] = [InFlight::default(), InFlight::default()];
        Self { device, driver, events, arenas, returning, requesting, turns: Turns::default() }
    }

    pub(crate) fn error(&self, source: DriverError) -> Error {
        Error::Driver { device: self.device, source }
    }

    /// Returns the virtual memory of the driver, for the sources that are used only where there is some.
    pub(super) fn address_space(&self) -> &dyn AddressSpace {
        self.driver.address_space().unwrap_or_else(|| unreachable!("this source needs virtual memory"))
    }

    /// Charges bytes that are about to be requested from the driver.
    pub(crate) fn charge(&self, arena: ArenaId, bytes: u64) -> Grown<Charge<'_>> {
        let allowed = self.allowed(arena);
        let mut statistics = self.arenas.statistics();
        if !statistics.charge(bytes) {
            let limit = statistics.limit;
            let cause = limit.map_or(OutOfMemoryCause::Device, |_| OutOfMemoryCause::Limit);
            return Err(Failure::Refused(cause));
        }
        if statistics.charged > allowed {
            statistics.refund(bytes);
            return Err(Failure::Refused(OutOfMemoryCause::Rejected));
        }
        Ok(Charge { context: self, bytes, _requesting: self.requesting.begin() })
    }

    /// Charges bytes that are about to be requested from the driver, whatever the limits are: memory that is only taken
    /// back.
    pub(super) fn charge_without_limit(&self, bytes: u64) -> Charge<'_> {
        self.arenas.statistics().charged += bytes;
        Charge { context: self, bytes, _requesting: self.requesting.begin() }
    }

    /// Returns how much may be charged ahead of the driver: with `throw_on_cudamalloc_oom`, the share of the device
    /// that the current settings allow.
    fn allowed(&self, arena: ArenaId) -> u64 {
        let config = *self.arenas.of(arena).lock().config();
        match config.reject_ahead_of_driver {
            true => share(config.memory_fraction, self.driver.properties().total_memory),
            false => u64::MAX,
        }
    }

    /// Converts a driver error into a failure. Lack of memory gets this cause.
    pub(crate) fn failure(&self, error: DriverError, cause: OutOfMemoryCause) -> Failure {
        match error.kind {
            DriverErrorKind::OutOfMemory => Failure::Refused(cause),
            _ => Failure::Error(self.error(error)),
        }
    }

    /// Records a failure to obtain charged memory, if it is due to lack of memory.
    pub(crate) fn refused(&self, failure: Failure) -> Failure {
        if let Failure::Refused(_) = failure {
            self.arenas.statistics().note(|| HistoryAction::Refused);
        }
        failure
    }

    /// Takes a segment from the driver, and enters the arena of the request, with all headroom in hand, where the
    /// segment is counted and recorded. The caller adds it to the arena.
    pub(super) fn new_segment(&self, parameters: &Parameters, size: u64) -> Grown<(Entered<'_>, Segment)> {
        let mut charge = self.charge(parameters.arena, size)?;
        let base = self.alloc(parameters.arena, size)?;
        charge.use_up(size);
        let mut entered = self.arenas.settle(parameters.arena);
        let segment = entered.segment_made(base, size, parameters);
        Ok((entered, segment))
    }

    /// Takes a charged segment from the driver, or from the arena's own source.
    fn alloc(&self, arena: ArenaId, size: u64) -> Grown<Base> {
        let own = self.arenas.of(arena).lock().private().source.clone();
        let segment = own.map_or_else(|| self.driver.alloc(size), |own| own.alloc(size));
        segment.map_err(|driver| {
            let largest = self.driver.properties().largest_allocation;
            self.refused(match driver.kind {
                DriverErrorKind::AllocationTooLarge => {
                    Failure::Refused(OutOfMemoryCause::AllocationTooLarge { largest, driver })
                }
                _ => self.failure(driver, OutOfMemoryCause::Device),
            })
        })
    }

    /// Gives segments that were detached from an arena back to the driver, after unlocking the arena. Returns the
    /// number of bytes.
    pub(crate) fn give_back(&self, arena: Guard<'_, Arena>, segments: Vec<DetachedSegment>) -> u64 {
        let config = *arena.config();
        let begin = |segment| (segment, self.returning.begin());
        let segments: Vec<_> = segments.into_iter().map(begin).collect();
        if let Some(recorder) = &mut self.arenas.statistics().recorder {
            // This comes before the driver call, since the driver may give the same address to another thread at once.
            for (DetachedSegment { base, size, stream, private, .. }, _) in &segments {
                let (address, size, stream) = (base.address(), *size, *stream);
                let subject = Subject { address, size, stream, mem_pool: private.pool };
                recorder.memory_left(TraceAction::SegmentFree, subject);
            }
        }
        drop(arena);
        let (mut bytes, mut panicked) = (0, None);
        for (detached, _returning) in segments {
            let (holder, size) = ((detached.private.pool, detached.pool), detached.size);
            match detached.private.source.clone() {
                // The program's source may panic. The other segments go back all the same.
                Some(source) => {
                    panicked = catch_unwind(AssertUnwindSafe(|| source.dealloc(detached))).err().or(panicked);
                }
                None => self.driver.dealloc(detached),
            }
            self.arenas.statistics().segment_released(&config, holder, size);
            bytes += size;
        }
        if let Some(panicked) = panicked {
            resume_unwind(panicked);
        }
        bytes
    }

    /// Reserves address space for a request that needs `bytes` bytes there, and adds it to the arena as a segment in
    /// which no pages are mapped. Returns its number.
    pub(super) fn reserve(
        &self,
        parameters: &Parameters,
        bytes: u64,
        page: Option<NonZeroU64>,
        mappings: &mut Mappings,
    ) -> Grown<SegmentId> {
        let (driver, arena) = (self.address_space(), self.arenas.of(parameters.arena));
        let sizes = page.and_then(|page| self.reservation_size(page).map(|len| (page, len)));
        let fits = |len: u64| len >= bytes && arena.lock().store().has_positions(len);
        let Some((page, len)) = sizes.filter(|(_, len)| fits(len.get())) else {
            return Err(self.refused(Failure::Refused(OutOfMemoryCause::Device)));
        };
        let refused = |error| self.refused(self.failure(error, OutOfMemoryCause::AddressSpace));
        let (base, len) = reserve_up_to(driver, len, bytes, page).map_err(refused)?;
        let created = self.arenas.statistics().segment_numbered();
        let new = Segment::new(base, len.get(), created, parameters.request.pool, Some(page));
        let segment = arena.lock().add_reservation(new);
        mappings.keep(segment, (base, len), page);
        Ok(segment)
    }

    /// Returns the size of an address range to reserve, in whole pages: like in PyTorch 9/8 of the device's memory,
    /// because pages may be unmapped at the start while others are mapped at the end. `None` if it does not fit into 64
    /// bits.
    fn reservation_size(&self, page: NonZeroU64) -> Option<NonZeroU64> {
        let total = self.driver.properties().total_memory.min(TOO_LARGE);
        NonZeroU64::new((total + total / 8).checked_next_multiple_of(page.get())?)
    }

    /// Waits for all work submitted to a stream so far, because drivers unmap without waiting. Returns false if the
    /// stream is being captured and so cannot be waited for.
    pub(crate) fn wait_for_work(&self, stream: StreamId) -> DriverResult<bool> {
        let Some(event) = self.events.record(stream)? else { return Ok(false) };
        let waited = self.events.wait_until_over(event);
        if waited.is_err() {
            self.events.take_back(event); // to be recorded again later
        }
        waited.map(|()| true)
    }
}
