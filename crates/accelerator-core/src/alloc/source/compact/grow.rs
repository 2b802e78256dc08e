//! A request that no free block serves: the plan is made and carried out.

use std::num::NonZeroU64;

use super::aliases::MappedAlias;
use super::epochs::Mapper;
use super::place::{Target, with_pool};
use super::plan::{Abilities, Effort, NewAlias, Part, Plan};
use super::ranges::ReservedRange;
use super::{Compact, CompactSource};
use crate::alloc::arena::{AllocatedBlock, Arena};
use crate::alloc::arenas::{Parameters, settled};
use crate::alloc::blocks::{BlockId, NewSegment, PageRange, SegmentId};
use crate::alloc::driver::AddressSpace;
use crate::alloc::settings::Request;
use crate::alloc::source::context::{Context, Failure};
use crate::backend::DriverResult;
use crate::sync::{Guard, lock, try_lock};
use crate::types::{OutOfMemoryCause, Result, StreamId};

/// What is to be done next.
enum Action<'a> {
    Done(AllocatedBlock),
    Grow(Vec<u64>),
    MapAlias(NewAlias, BackingBlocks<'a>),
    Exchange(Vec<u64>),
    /// The stream waits for the others, on the device.
    Wait,
}

/// Where chunks are to be made.
#[derive(Clone, Copy)]
struct Site {
    segment: SegmentId,
    /// Bytes from the start of the segment.
    offset: u64,
    position: u64,
}

/// Blocks that are held for an alias to be made of their bytes. On drop they become free again.
struct BackingBlocks<'a> {
    context: &'a Context,
    stream: StreamId,
    blocks: Vec<BlockId>,
}

impl BackingBlocks<'_> {
    /// They become free, since the alias has their bytes or will not be made.
    fn release(&mut self, compact: &mut Compact) {
        let owner = compact.owner(self.stream);
        self.blocks.drain(..).for_each(|block| compact.put_free(block, owner));
    }
}

impl Drop for BackingBlocks<'_> {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            let mut arena = self.context.arenas.of(StreamId::SHARED).lock();
            self.release(Compact::of(&mut arena));
        }
    }
}

impl CompactSource {
    /// The arena of the policy, and a request as it is there; `None`: the stream is one too many, and has its own.
    pub(crate) fn enter<'a>(
        &self,
        context: &'a Context,
        request: Request,
        stream: StreamId,
    ) -> Option<(Guard<'a, Arena>, Request)> {
        let shared = context.arenas.of(StreamId::SHARED);
        let mut arena = shared.lock();
        if Compact::of(&mut arena).owners.is_due() {
            drop(arena);
            if let Some(memory) = try_lock(&self.memory) {
                Mapper { context, memory }.end_epochs(stream, false);
            }
            arena = shared.lock();
        }
        let compact = Compact::of(&mut arena);
        let owner = compact.owners.number_or_new(stream)?;
        compact.store.free.add_owner(owner);
        Some((arena, with_pool(request)))
    }

    pub(super) fn grow_shared(
        &self,
        context: &Context,
        wanted: &Parameters,
    ) -> Result<AllocatedBlock, Failure> {
        let mut mapper = Mapper { context, memory: lock(&self.memory) };
        mapper.end_epochs(wanted.stream, true);
        let Some(driver) = context.driver.address_space() else { return mapper.grow_segments(wanted) };
        let mut grown = mapper.carry_out(driver, wanted, Effort::LongRun);
        for effort in [Effort::Exact, Effort::Utmost] {
            if matches!(grown, Err(Failure::Refused(_))) {
                grown = mapper.carry_out(driver, wanted, effort);
            }
        }
        grown
    }
}

impl<'a> Mapper<'a> {
    /// Plans, and does what was planned, until the request has its bytes.
    fn carry_out(
        &mut self,
        driver: &dyn AddressSpace,
        wanted: &Parameters,
        mut effort: Effort,
    ) -> Result<AllocatedBlock, Failure> {
        let capturing = self.context.driver.is_capturing(wanted.stream);
        let mut waits = !capturing.map_err(|error| self.context.error(error))?;
        loop {
            let granularity = driver.granularity().get();
            let abilities = Abilities { granularity, maps_twice: driver.maps_twice(), waits };
            match self.next_action(abilities, wanted, effort) {
                Action::Done(block) => return Ok(block),
                Action::Grow(lens) => {
                    self.make_chunks(driver, wanted, &lens)?;
                }
                Action::Exchange(chunks) => {
                    // What could not go is free memory, as before.
                    let _ =
                        self.give_back_idle(driver, Some(wanted.stream), |chunk, _| chunks.contains(&chunk));
                    effort = Effort::Exact;
                }
                Action::Wait => {
                    self.wait_on_device(wanted.stream);
                    waits = false; // once is enough
                }
                Action::MapAlias(alias, backing) => {
                    if let Some(block) = self.map_alias(driver, wanted, alias, backing)? {
                        return Ok(block);
                    }
                }
            }
        }
    }

    fn next_action(&self, driver: Abilities, wanted: &Parameters, effort: Effort) -> Action<'a> {
        let mut entered = self.context.arenas.settle(StreamId::SHARED);
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        let plan = compact.plan(&wanted.request, owner, driver, effort);
        if compact.is_worth_waiting(&plan, &wanted.request, owner, driver, effort) {
            return Action::Wait;
        }
        match plan {
            Plan::Take(target) => {
                let block = settled(compact.take_at(target, &wanted.request, owner));
                entered.record(wanted, &block);
                Action::Done(block)
            }
            Plan::Grow(lens) => Action::Grow(lens),
            Plan::Exchange(chunks) => {
                compact.rearranged += 1;
                Action::Exchange(chunks)
            }
            Plan::MapAlias(alias) => {
                let hold = |part: &Part| compact.hold(part.chunk + part.from, part.to - part.from, owner);
                let blocks = alias.parts.iter().map(hold).collect();
                let (context, stream) = (self.context, wanted.stream);
                Action::MapAlias(alias, BackingBlocks { context, stream, blocks })
            }
        }
    }

    /// Makes chunks at the end of the owner's range: free memory. Where they start.
    fn make_chunks(
        &mut self,
        driver: &dyn AddressSpace,
        wanted: &Parameters,
        lens: &[u64],
    ) -> Result<u64, Failure> {
        let context = self.context;
        let len = lens.iter().sum();
        let mut charge = context.charge(StreamId::SHARED, len)?;
        let site = self.site(driver, wanted, len);
        let site =
            site.map_err(|error| context.refused(context.failure(error, OutOfMemoryCause::AddressSpace)))?;
        let (range, site) =
            site.ok_or_else(|| context.refused(Failure::Refused(OutOfMemoryCause::Device)))?;
        let (made, result) = self.memory.mappings.make(driver, (site.segment, site.offset), lens);
        if made > 0 {
            let made = &lens[..made];
            let mut entered = context.arenas.settle(StreamId::SHARED);
            let pages = PageRange { segment: site.segment, offset: site.offset, len: made.iter().sum() };
            entered.pages_mapped(pages, charge.use_up(pages.len), wanted);
            let compact = Compact::of(entered.arena());
            compact.add_chunks(range, made);
            compact.growths += 1;
        }
        result.map_err(|error| context.refused(context.failure(error, OutOfMemoryCause::Device)))?;
        Ok(site.position)
    }

    /// Where the owner's next chunks go: the number of the range, and the place there; `None`: no range is as long.
    fn site(
        &mut self,
        driver: &dyn AddressSpace,
        wanted: &Parameters,
        len: u64,
    ) -> DriverResult<Option<(usize, Site)>> {
        if let Some(site) = self.site_in_range(wanted, len) {
            return Ok(Some(site));
        }
        let page = driver.granularity();
        let size = self.context.reservation_size(page).and_then(NonZeroU64::new);
        let has_positions = |size: u64| self.arena().store().blocks.has_positions(size);
        let Some(size) = size.filter(|size| size.get() >= len && has_positions(size.get())) else {
            return Ok(None);
        };
        let base = driver.reserve(size)?;
        let created = self.context.arenas.statistics().segment_numbered();
        let pool = wanted.request.pool;
        let new = NewSegment { base, size: size.get(), created, pool, page: Some(page) };
        let mut arena = self.arena();
        let segment = arena.add_reservation(new);
        let compact = Compact::of(&mut arena);
        let owner = compact.owner(wanted.stream);
        compact.ranges.push(ReservedRange { owner, pool, segment, end: 0, owned: 0 });
        drop(arena);
        self.memory.mappings.keep(segment, (base, size), page);
        Ok(self.site_in_range(wanted, len))
    }

    fn site_in_range(&self, wanted: &Parameters, len: u64) -> Option<(usize, Site)> {
        let mut arena = self.arena();
        let compact = Compact::of(&mut arena);
        let range = compact.range(compact.owner(wanted.stream), wanted.request.pool)?;
        let ReservedRange { segment, end, .. } = compact.ranges[range];
        let site = Site { segment, offset: end, position: compact.end_of(range) };
        (compact.space_in(range) >= len).then_some((range, site))
    }

    /// Maps an alias of bytes that are held for it, and allocates the request there; `None`: another thread was given what was made
    /// for it.
    fn map_alias(
        &mut self,
        driver: &dyn AddressSpace,
        wanted: &Parameters,
        alias: NewAlias,
        mut backing: BackingBlocks<'_>,
    ) -> Result<Option<AllocatedBlock>, Failure> {
        let from = alias.parts.first().filter(|_| alias.behind > 0).map_or(0, |part| part.from);
        let Some(chunks) = self.chunks_of_alias(driver, wanted, alias, &mut backing)? else {
            return Ok(None);
        };
        let len = chunks.iter().map(|(_, len)| len).sum();
        if !self.arena().store().blocks.has_positions(len) {
            return Err(Failure::Refused(OutOfMemoryCause::AddressSpace));
        }
        let places = {
            let mut arena = self.arena();
            let compact = Compact::of(&mut arena);
            chunks.iter().map(|(chunk, _)| compact.place_of_chunk(*chunk)).collect::<Vec<_>>()
        };
        let (addresses, mapped, result) = self.memory.mappings.map_alias(driver, &places);
        let mapped = addresses.map(|addresses| MappedAlias { addresses, chunks, mapped });
        let block = self.take_in_alias(wanted, backing, mapped, from);
        self.drop_old_aliases(driver);
        match (block, result) {
            (Some(block), _) => Ok(Some(block)),
            (None, Ok(())) => Err(Failure::Refused(OutOfMemoryCause::Device)),
            (None, Err(error)) => Err(self.context.failure(error, OutOfMemoryCause::AddressSpace)),
        }
    }

    /// The chunks to map, each with its length: those that the backing blocks are in, and others that are made now; `None`: another
    /// thread was given what was made.
    fn chunks_of_alias(
        &mut self,
        driver: &dyn AddressSpace,
        wanted: &Parameters,
        alias: NewAlias,
        backing: &mut BackingBlocks<'_>,
    ) -> Result<Option<Vec<(u64, u64)>>, Failure> {
        let NewAlias { parts, made, behind } = alias;
        let mut chunks: Vec<_> = parts.iter().map(|part| (part.chunk, part.len)).collect();
        if made.is_empty() {
            return Ok(Some(chunks));
        }
        let start = self.make_chunks(driver, wanted, &made)?;
        let mut position = start;
        for (number, len) in made.iter().enumerate() {
            chunks.insert(behind + number, (position, *len));
            position = position.wrapping_add(*len);
        }
        let mut arena = self.arena();
        let compact = Compact::of(&mut arena);
        let owner = compact.owner(wanted.stream);
        let missing = wanted.request.size - parts.iter().map(|part| part.to - part.from).sum::<u64>();
        if compact.can_use(start, missing, owner) != Some(true) {
            return Ok(None);
        }
        backing.blocks.push(compact.hold(start, missing, owner));
        Ok(Some(chunks))
    }

    /// Takes in an alias, if it was made, and allocates the request so many bytes behind its start, if all of them were mapped.
    fn take_in_alias(
        &mut self,
        wanted: &Parameters,
        mut backing: BackingBlocks<'_>,
        mapped: Option<MappedAlias>,
        from: u64,
    ) -> Option<AllocatedBlock> {
        let mut entered = self.context.arenas.settle(StreamId::SHARED);
        let (arena, statistics) = entered.parts();
        let compact = Compact::of(arena);
        backing.release(compact);
        let mapped = mapped?;
        let (segment, start) = compact.add_alias(&mapped);
        self.memory.mappings.keep(segment, mapped.addresses, mapped.addresses.1);
        compact.rearranged += 1;
        statistics.totals.num_device_alloc += 1;
        let owner = compact.owner(wanted.stream);
        if compact.can_use(start + from, wanted.request.size, owner) != Some(true) {
            return None;
        }
        let block = settled(compact.take_at(Target::At(start + from), &wanted.request, owner));
        entered.record(wanted, &block);
        Some(block)
    }
}
