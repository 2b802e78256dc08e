//! A request that no free block serves: the plan is made and carried out.

use std::num::NonZeroU64;

use super::homes::Home;
use super::memory::Memory;
use super::plan::{Abilities, Plan, Stitch, Thrift};
use super::{Place, pool};
use crate::alloc::CachingAllocator;
use crate::alloc::arena::{Arena, Taken};
use crate::alloc::block::{BlockId, SegmentId};
use crate::alloc::expandable::PageRange;
use crate::alloc::ladder::{Asked, Grown};
use crate::alloc::policy::{Request, TOO_LARGE};
use crate::backend::{Backend, DevicePtr};
use crate::stream::Stream;
use crate::sync::{Guard, lock, try_lock};
use crate::types::{DriverError, DriverErrorKind, OutOfMemoryCause, Result, StreamId};
use crate::virtual_memory::VirtualMemory;

/// What is to be done next.
enum Step<P> {
    Done(Taken<P>),
    Grow(Vec<u64>),
    Stitch(Stitch, Vec<BlockId>),
    Exchange(Vec<u64>),
    /// The stream waits for the others, on the device.
    Wait,
}

/// Where chunks are to be made.
#[derive(Clone, Copy)]
struct Site {
    home: usize,
    segment: SegmentId,
    /// Bytes from the start of the home.
    offset: u64,
    position: u64,
}

impl<B: Backend> CachingAllocator<B> {
    /// The arena of the policy, and a request as it is there; the stream's own, if the stream is one too many.
    pub(in crate::alloc) fn to_shared(
        &self,
        request: Request,
        stream: Stream<B>,
    ) -> (Guard<'_, Arena<B::Ptr>>, Request) {
        let arena = self.arena(StreamId::SHARED);
        let mut held = arena.lock();
        if held.compact().owners.is_due() {
            drop(held);
            if let Some(mut memory) = try_lock(&self.compact) {
                self.end_epochs(&mut memory, stream, false);
            }
            held = arena.lock();
        }
        match held.compact_mut().owners.number_or_new(stream.id()) {
            Some(_) => (held, Request { pool: pool(request.size), ..request }),
            None => {
                drop(held);
                (self.arena(stream.id()).lock(), request)
            }
        }
    }

    /// Makes room for a request and takes it there.
    pub(in crate::alloc) fn grow_compact(
        &self,
        driver: Option<&dyn VirtualMemory<B::Ptr>>,
        asked: &Asked<B>,
    ) -> Result<Grown<B::Ptr>> {
        if asked.request.size > self.backend.properties().total_memory {
            return Ok(Grown::Refused(OutOfMemoryCause::Device)); // ahead of a list of as many chunks
        }
        let mut memory = lock(&self.compact);
        self.end_epochs(&mut memory, asked.stream, true);
        let Some(driver) = driver else { return self.grow_segments(asked) };
        let mut refused = OutOfMemoryCause::Device;
        for thrift in [Thrift::InTheLongRun, Thrift::Exact, Thrift::AtAnyPrice] {
            match self.carry_out(driver, &mut memory, asked, thrift)? {
                Grown::Refused(cause) => refused = cause,
                taken => return Ok(taken),
            }
        }
        Ok(Grown::Refused(refused))
    }

    /// Plans, and does what was planned, until the request has its bytes.
    fn carry_out(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        asked: &Asked<B>,
        mut thrift: Thrift,
    ) -> Result<Grown<B::Ptr>> {
        let mut waits = !self.is_capturing(asked.stream)?;
        loop {
            let granularity = driver.granularity().get();
            let abilities = Abilities { granularity, maps_twice: driver.maps_twice(), waits };
            match self.next_step(abilities, asked, thrift) {
                Step::Done(taken) => return Ok(Grown::Taken(taken)),
                Step::Grow(lens) => {
                    if let Err(refused) = self.make_chunks(driver, memory, asked, &lens)? {
                        return Ok(Grown::Refused(refused));
                    }
                }
                Step::Exchange(chunks) => {
                    // What could not go is free memory, as before.
                    let _ = self
                        .give_back_idle(driver, memory, Some(asked.stream), |chunk| chunks.contains(&chunk));
                    thrift = Thrift::Exact;
                }
                Step::Wait => {
                    self.wait_on_device(memory, asked.stream);
                    waits = false; // once is enough
                }
                Step::Stitch(stitch, shadows) => {
                    if let Some(grown) = self.stitch(driver, memory, asked, stitch, shadows)? {
                        return Ok(grown);
                    }
                }
            }
        }
    }

    fn next_step(&self, driver: Abilities, asked: &Asked<B>, thrift: Thrift) -> Step<B::Ptr> {
        self.settled(self.arena(StreamId::SHARED).lock(), |arena, books| {
            let owner = arena.owner_number(asked.stream.id());
            let plan = arena.plan(&asked.request, owner, driver, thrift);
            if arena.is_worth_waiting(&plan, &asked.request, owner, driver, thrift) {
                return Ok(Step::Wait);
            }
            Ok(match plan {
                Plan::Take(place) => {
                    let taken = arena.take_at(place, &asked.request, owner)?;
                    asked.record(books, &taken);
                    Step::Done(taken)
                }
                Plan::Grow(lens) => Step::Grow(lens),
                Plan::Exchange(chunks) => {
                    arena.compact_mut().stitches += 1;
                    Step::Exchange(chunks)
                }
                Plan::Stitch(stitch) => {
                    let shadows = stitch
                        .parts
                        .iter()
                        .map(|part| arena.hold(part.chunk + part.from, part.to - part.from, owner))
                        .collect();
                    Step::Stitch(stitch, shadows)
                }
            })
        })
    }

    /// Makes chunks at the end of the owner's home: free memory. Where they start; why not, if that was refused.
    fn make_chunks(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        asked: &Asked<B>,
        lens: &[u64],
    ) -> Result<Result<u64, OutOfMemoryCause>> {
        let len: u64 = lens.iter().sum();
        let _asking = match self.charge(asked, len) {
            Ok(asking) => asking,
            Err(cause) => return Ok(Err(cause)),
        };
        let made = self.make_charged(driver, memory, asked, lens);
        match made {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => self.refused(len, DriverErrorKind::OutOfMemory),
            Err(_) => self.ledger.lock().refund(len),
        }
        made
    }

    fn make_charged(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        asked: &Asked<B>,
        lens: &[u64],
    ) -> Result<Result<u64, OutOfMemoryCause>> {
        let len: u64 = lens.iter().sum();
        let site = match self.site(driver, memory, asked, len) {
            Ok(Some(site)) => site,
            Ok(None) => return Ok(Err(OutOfMemoryCause::Device)),
            Err(error) => return self.refusal(error, OutOfMemoryCause::AddressSpace).map(Err),
        };
        let (made, result) = memory.make(driver, (site.segment, site.offset, site.position), lens);
        let made = &lens[..made];
        if !made.is_empty() {
            let len = made.iter().sum();
            self.settled(self.arena(StreamId::SHARED).lock(), |arena, books| {
                if result.is_ok() {
                    books.refund(len); // its charge was set aside before
                }
                books.pages_mapped(asked.request.pool, len);
                let range = PageRange { segment: site.segment, offset: site.offset, len };
                if let Some(recorder) = &mut books.recorder {
                    let address = arena.address_of(range).trace_address();
                    recorder.pages_mapped(address, range, asked.stream.id(), asked.context.clone());
                }
                arena.add_chunks(site.home, made);
                arena.compact_mut().growths += 1;
                Ok(())
            });
        }
        match result {
            Ok(()) => Ok(Ok(site.position)),
            Err(error) => self.refusal(error, OutOfMemoryCause::Device).map(Err),
        }
    }

    /// Where the owner's next chunks go; `None`: no home is as long.
    fn site(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        asked: &Asked<B>,
        len: u64,
    ) -> std::result::Result<Option<Site>, DriverError> {
        let pool = asked.request.pool;
        let find = || {
            let arena = self.arena(StreamId::SHARED).lock();
            let home = arena.home(arena.owner_number(asked.stream.id()), pool)?;
            (arena.space_in(home) >= len).then(|| arena.site(home))
        };
        if let Some(site) = find() {
            return Ok(Some(site));
        }
        let total = self.backend.properties().total_memory.min(TOO_LARGE);
        let page = driver.granularity();
        let reserved = (total + total / 8).checked_next_multiple_of(page.get()).and_then(NonZeroU64::new);
        let has_positions = |len| self.arena(StreamId::SHARED).lock().blocks.has_positions(len);
        let is_enough = |reserved: &NonZeroU64| reserved.get() >= len && has_positions(reserved.get());
        let Some(reserved) = reserved.filter(is_enough) else { return Ok(None) };
        memory.reserve_home(driver, reserved, |at| {
            let created = self.ledger.lock().segment_numbered();
            let mut arena = self.arena(StreamId::SHARED).lock();
            let owner = arena.owner_number(asked.stream.id());
            let segment = arena.add_expandable(at, reserved.get(), created, pool, page);
            arena.add_home(owner, pool, segment);
            segment
        })?;
        Ok(find())
    }

    /// Makes a strip of bytes that are held for it, and takes the request there; `None`: another thread was given what was made for it.
    fn stitch(
        &self,
        driver: &dyn VirtualMemory<B::Ptr>,
        memory: &mut Memory<B>,
        asked: &Asked<B>,
        stitch: Stitch,
        mut shadows: Vec<BlockId>,
    ) -> Result<Option<Grown<B::Ptr>>> {
        let Stitch { parts, made, behind } = stitch;
        let mut chunks: Vec<_> = parts.iter().map(|part| (part.chunk, part.len)).collect();
        if !made.is_empty() {
            let start = match self.make_chunks(driver, memory, asked, &made) {
                Ok(Ok(start)) => start,
                refused => {
                    self.let_go(asked, shadows);
                    let cause = |refused: Result<_, _>| refused.err().unwrap_or(OutOfMemoryCause::Device);
                    return refused.map(|refused| Some(Grown::Refused(cause(refused))));
                }
            };
            let mut position = start;
            for (number, len) in made.iter().enumerate() {
                chunks.insert(behind + number, (position, *len));
                position = position.wrapping_add(*len);
            }
            let mut arena = self.arena(StreamId::SHARED).lock();
            let owner = arena.owner_number(asked.stream.id());
            let missing = asked.request.size - parts.iter().map(|part| part.to - part.from).sum::<u64>();
            if arena.can_use(start, missing, owner) != Some(true) {
                drop(arena);
                self.let_go(asked, shadows);
                return Ok(None);
            }
            shadows.push(arena.hold(start, missing, owner));
        }
        let len = chunks.iter().map(|(_, len)| len).sum();
        if !self.arena(StreamId::SHARED).lock().blocks.has_positions(len) {
            self.let_go(asked, shadows);
            return Ok(Some(Grown::Refused(OutOfMemoryCause::AddressSpace)));
        }
        let (at, mapped, result) = memory.stitch(driver, &chunks);
        let from = parts.first().filter(|_| behind > 0).map_or(0, |part| part.from);
        let done = self.settled(self.arena(StreamId::SHARED).lock(), |arena, books| {
            let owner = arena.owner_number(asked.stream.id());
            shadows.drain(..).for_each(|shadow| arena.put_free(shadow, owner));
            let Some(at) = at else { return Ok(None) };
            let start = arena.add_strip(at, &chunks, mapped);
            memory.keep_strip(start, at, len);
            arena.compact_mut().stitches += 1;
            books.statistics.num_device_alloc += 1;
            let place = start + from;
            if arena.can_use(place, asked.request.size, owner) != Some(true) {
                return Ok(None);
            }
            let taken = arena.take_at(Place::At(place), &asked.request, owner)?;
            asked.record(books, &taken);
            Ok(Some(taken))
        });
        self.drop_old_strips(driver, memory);
        match (done, result) {
            (Some(taken), _) => Ok(Some(Grown::Taken(taken))),
            (None, Ok(())) => Ok(Some(Grown::Refused(OutOfMemoryCause::Device))),
            (None, Err(error)) => {
                let cause = self.refusal(error, OutOfMemoryCause::AddressSpace)?;
                Ok(Some(Grown::Refused(cause)))
            }
        }
    }

    /// Bytes that are held become free.
    fn let_go(&self, asked: &Asked<B>, shadows: Vec<BlockId>) {
        let mut arena = self.arena(StreamId::SHARED).lock();
        let owner = arena.owner_number(asked.stream.id());
        shadows.into_iter().for_each(|shadow| arena.put_free(shadow, owner));
    }

    /// The cause of an error for lack of memory; any other is the caller's.
    fn refusal(&self, error: DriverError, cause: OutOfMemoryCause) -> Result<OutOfMemoryCause> {
        match error.kind {
            DriverErrorKind::OutOfMemory => Ok(cause),
            _ => Err(self.driver_error(error)),
        }
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Where the next chunks of a home go.
    fn site(&self, home: usize) -> Site {
        let Home { segment, end, .. } = self.compact().homes[home];
        Site { home, segment, offset: end, position: self.end_of(home) }
    }
}
