//! Handling a request that no free block serves: planning, and carrying the plan out.

use super::aliases::MappedAlias;
use super::cost_model::Effort;
use super::epochs::Mapper;
use super::place::{Target, with_pool};
use super::plan::{Abilities, Miss, NewAlias, Part, Plan};
use super::ranges::ReservedRange;
use super::{Compact, CompactSource};
use crate::alloc::arena::{AllocatedBlock, ArenaId};
use crate::alloc::arenas::{Parameters, settled};
use crate::alloc::blocks::{BlockId, PageRange};
use crate::alloc::settings::Request;
use crate::alloc::source::context::{Context, Failure, Grown};
use crate::alloc::source::interface::Entry;
use crate::sync::primitives::try_lock;
use crate::types::{OutOfMemoryCause, StreamId};

/// The next step.
enum Action<'a> {
    Done(AllocatedBlock),
    Grow(Vec<u64>),
    MapAlias(HeldAlias<'a>),
    Exchange(Vec<u64>),
    /// The stream waits for the others on the device.
    Wait,
}

/// An alias to be mapped, and the blocks held for it, from whose bytes it is to be made. On drop these become free.
struct HeldAlias<'a> {
    context: &'a Context,
    arena: ArenaId,
    stream: StreamId,
    alias: NewAlias,
    blocks: Vec<BlockId>,
}

impl HeldAlias<'_> {
    /// Frees the blocks, because the alias block takes over their bytes or will not be made.
    fn release(&mut self, compact: &mut Compact) {
        let owner = compact.owner(self.stream);
        self.blocks.drain(..).for_each(|block| compact.put_free(block, owner));
    }
}

impl Drop for HeldAlias<'_> {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            let mut arena = self.context.arenas.of(self.arena).lock();
            self.release(Compact::of(&mut arena));
        }
    }
}

impl CompactSource {
    /// Returns this arena of the policy and the request adapted to it; `None` if there are too many streams, and this
    /// one must use its own arena.
    pub(super) fn enter_shared<'a>(
        &self,
        context: &'a Context,
        id: ArenaId,
        request: Request,
        stream: StreamId,
    ) -> Option<Entry<'a>> {
        let shared = context.arenas.of(id);
        let mut arena = shared.lock();
        if Compact::of(&mut arena).owners.is_due() {
            drop(arena);
            if let Some(mapped) = try_lock(self.mapped(id)) {
                Mapper { context, arena: id, mapped }.end_epochs(stream, false);
            }
            arena = shared.lock();
        }
        let compact = Compact::of(&mut arena);
        let owner = compact.owners.number_or_new(stream)?;
        compact.store.free.add_owner(owner);
        Some((arena, with_pool(request)))
    }
}

impl<'a> Mapper<'a> {
    /// Plans and carries out steps until the request has its bytes.
    pub(super) fn carry_out(&mut self, wanted: &Parameters, mut effort: Effort) -> Grown {
        let capturing = || self.context.events.is_capturing(wanted.stream);
        let has_chunks = self.context.driver.address_space().is_some();
        let mut waits = has_chunks && !capturing().map_err(|error| self.context.error(error))?;
        self.see_room();
        loop {
            match self.next_action(self.abilities(waits), wanted, effort) {
                Action::Done(block) => return Ok(block),
                Action::Grow(lens) if has_chunks => drop(self.make_chunks(wanted, &lens, wanted.request.size)?),
                Action::Grow(lens) => self.make_segment(wanted, lens.iter().sum())?,
                Action::Exchange(chunks) if has_chunks => {
                    // Chunks that could not go back are free memory, as before.
                    let _ = self.give_back_idle(Some(wanted.stream), |chunk, _| chunks.contains(&chunk));
                    effort = Effort::Exact;
                }
                Action::Exchange(segments) => self.give_back_segments(|one| segments.contains(&one.position)),
                Action::Wait => {
                    self.wait_on_device(wanted.stream);
                    waits = false; // once is enough
                }
                Action::MapAlias(held) => {
                    if let Some(block) = self.map_alias(wanted, held)? {
                        return Ok(block);
                    }
                }
            }
        }
    }

    /// Notes how much memory the device has left: what the limit and the driver allow. The driver is asked only once an
    /// eighth of what it had is charged, because other processes take memory, too.
    fn see_room(&mut self) {
        let (limit, charged) = {
            let statistics = self.context.arenas.statistics();
            (statistics.limit.unwrap_or(u64::MAX), statistics.charged)
        };
        let left = |(free, before): (u64, u64)| free.saturating_add(before).saturating_sub(charged);
        let known = self.mapped.free.filter(|known| left(*known) > known.0 / 8 * 7);
        let known = known.or_else(|| Some((self.context.driver.memory_info().ok()?.free, charged)));
        self.mapped.free = known;
        let room = known.map_or(u64::MAX, left).min(limit.saturating_sub(charged));
        let page = self.context.driver.address_space().map(|driver| driver.granularity().get());
        self.in_arena(|compact| {
            compact.costs.room = room;
            compact.within_page = page.filter(|_| compact.costs.has_short_chunks()).map_or(0, |page| page - 1);
            compact.separates = page.is_none() && compact.costs.has_short_segments();
        });
    }

    fn abilities(&self, waits: bool) -> Abilities {
        let driver = &self.context.driver;
        let Some(space) = driver.address_space() else {
            return Abilities::Segments { largest: driver.properties().largest_allocation };
        };
        Abilities::Chunks { granularity: space.granularity().get(), maps_twice: space.maps_twice(), waits }
    }

    fn next_action(&self, driver: Abilities, wanted: &Parameters, effort: Effort) -> Action<'a> {
        let mut entered = self.context.arenas.settle(self.arena);
        let compact = Compact::of(entered.arena());
        let owner = compact.owner(wanted.stream);
        let miss = Miss { request: &wanted.request, owner, driver, effort };
        let plan = compact.plan(miss);
        if compact.is_worth_waiting(&plan, miss) {
            return Action::Wait;
        }
        match plan {
            Plan::Take(target) => {
                let block = settled(compact.take(target, &wanted.request, owner));
                entered.record(wanted, &block);
                Action::Done(block)
            }
            Plan::Grow(lens) => Action::Grow(lens),
            Plan::Exchange(chunks) => {
                compact.costs.rearranged += 1;
                Action::Exchange(chunks)
            }
            Plan::MapAlias(alias) => {
                let hold = |part: &Part| compact.hold(part.chunk + part.from, part.to - part.from, owner);
                let blocks = alias.parts.iter().map(hold).collect();
                let (context, arena, stream) = (self.context, self.arena, wanted.stream);
                Action::MapAlias(HeldAlias { context, arena, stream, alias, blocks })
            }
        }
    }

    /// Makes chunks at the end of the owner's range, as free memory. A range that is reserved for them has space for
    /// `least` bytes. Returns their start position.
    fn make_chunks(&mut self, wanted: &Parameters, lens: &[u64], least: u64) -> Grown<u64> {
        let context = self.context;
        let len = lens.iter().sum();
        let mut charge = context.charge(self.arena, len)?;
        let range = self.range_with_space(wanted, len, least)?;
        let (ReservedRange { segment, end: offset, .. }, start) =
            self.in_arena(|compact| (compact.ranges[range], compact.end_of(range)));
        let (made, result) = context.turns.take(|| self.mappings().make((segment, offset), lens));
        if made > 0 {
            let made = &lens[..made];
            let mut entered = context.arenas.settle(self.arena);
            let pages = PageRange { segment, offset, len: made.iter().sum() };
            entered.pages_mapped(pages, charge.use_up(pages.len), wanted);
            let compact = Compact::of(entered.arena());
            compact.add_chunks(range, made);
            compact.costs.growths += 1;
        }
        match result {
            Ok(()) => Ok(start),
            Err(error) => {
                self.mapped.free = None; // another process may have taken memory
                Err(context.refused(context.failure(error, OutOfMemoryCause::Device)))
            }
        }
    }

    /// Returns the index of an owner's range with space for this many more bytes. If there is none, reserves one, which
    /// has space for `least` bytes, too: a request that only adds what the free end of the old range lacks cannot use
    /// that in a new one. If it then lacked space again, it would make memory in one range after another.
    fn range_with_space(&mut self, wanted: &Parameters, len: u64, least: u64) -> Grown<usize> {
        let Parameters { request: Request { pool, .. }, stream, .. } = *wanted;
        let newest = self.in_arena(|compact| {
            let range = compact.range(compact.owner(stream), pool)?;
            (compact.space_in(range) >= len).then_some(range)
        });
        if let Some(range) = newest {
            return Ok(range);
        }
        let page = self.context.address_space().granularity();
        let least = len.max(least);
        let segment = self.context.reserve(wanted, least, Some(page), &mut self.mapped.mappings)?;
        Ok(self.in_arena(|compact| {
            let owner = compact.owner(stream);
            compact.ranges.push(ReservedRange { owner, pool, segment, end: 0, owned: 0 });
            compact.ranges.len() - 1
        }))
    }

    /// Maps an alias to the bytes held for it, and allocates the request there. Returns `None` if another thread took
    /// the memory that was made for it.
    fn map_alias(&mut self, wanted: &Parameters, mut held: HeldAlias<'_>) -> Grown<Option<AllocatedBlock>> {
        let NewAlias { parts, behind, .. } = &held.alias;
        let from = parts.first().filter(|_| *behind > 0).map_or(0, |part| part.from);
        let Some(chunks) = self.chunks_of_alias(wanted, &mut held)? else { return Ok(None) };
        let len = chunks.iter().map(|(_, len)| len).sum();
        if !self.arena().store().has_positions(len) {
            return Err(Failure::Refused(OutOfMemoryCause::AddressSpace));
        }
        let places: Vec<_> =
            self.in_arena(|compact| chunks.iter().map(|(chunk, _)| compact.place_of_chunk(*chunk)).collect());
        let (addresses, mapped, result) = self.mappings().map_alias(&places);
        let mapped = addresses.map(|addresses| MappedAlias { addresses, chunks, mapped });
        let block = self.take_in_alias(wanted, held, mapped, from);
        self.drop_old_aliases();
        match (block, result) {
            (Some(block), _) => Ok(Some(block)),
            (None, Ok(())) => Err(Failure::Refused(OutOfMemoryCause::Device)),
            (None, Err(error)) => Err(self.context.failure(error, OutOfMemoryCause::AddressSpace)),
        }
    }

    /// Returns the chunks to map, each with its length: those of the backing blocks, and new ones that are made here.
    /// Returns `None` if another thread took the new memory.
    fn chunks_of_alias(&mut self, wanted: &Parameters, held: &mut HeldAlias<'_>) -> Grown<Option<Vec<(u64, u64)>>> {
        let NewAlias { parts, made, behind } = &held.alias;
        let mut chunks: Vec<_> = parts.iter().map(|part| (part.chunk, part.len)).collect();
        if made.is_empty() {
            return Ok(Some(chunks));
        }
        let start = self.make_chunks(wanted, made, 0)?;
        let mut position = start;
        for (number, len) in made.iter().enumerate() {
            chunks.insert(behind + number, (position, *len));
            position = position.wrapping_add(*len);
        }
        let missing = wanted.request.size - parts.iter().map(|part| part.to - part.from).sum::<u64>();
        Ok(self.in_arena(|compact| {
            let owner = compact.owner(wanted.stream);
            let is_free = compact.can_use(start, missing, owner) == Some(true);
            is_free.then(|| held.blocks.push(compact.hold(start, missing, owner)))?;
            Some(chunks)
        }))
    }

    /// Adds the alias if it was mapped, and allocates the request at offset `from` in it if all of its bytes were
    /// mapped.
    fn take_in_alias(
        &mut self,
        wanted: &Parameters,
        mut held: HeldAlias<'_>,
        mapped: Option<MappedAlias>,
        from: u64,
    ) -> Option<AllocatedBlock> {
        let mut entered = self.context.arenas.settle(self.arena);
        let (arena, statistics) = entered.parts();
        let compact = Compact::of(arena);
        held.release(compact);
        let mapped = mapped?;
        let (segment, start) = compact.add_alias(&mapped);
        self.mapped.mappings.keep(segment, mapped.addresses, mapped.addresses.1);
        compact.costs.rearranged += 1;
        statistics.alias_mapped();
        let owner = compact.owner(wanted.stream);
        if compact.can_use(start + from, wanted.request.size, owner) != Some(true) {
            return None;
        }
        let block = settled(compact.take(Target::At(start + from), &wanted.request, owner));
        entered.record(wanted, &block);
        Some(block)
    }
}
