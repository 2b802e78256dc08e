//! Expandable segments: pages are mapped where a request needs them, and unmapped where they are free. PyTorch:
//! `try_allocate_expandable_block`, `unmap_block`.

mod sleep;

use std::num::NonZeroU64;

use super::context::{Charge, Context, Grown};
use super::interface::{Limits, Source, Wanted};
use crate::alloc::arena::{AllocatedBlock, Arena, ArenaId};
use crate::alloc::arenas::{Entered, Parameters, settled};
use crate::alloc::blocks::{Base, BlockId, PageRange};
use crate::alloc::driver::Mappings;
use crate::alloc::settings::Request;
use crate::share::Piece;
use crate::sync::primitives::{Mutex, lock, try_lock};
use crate::sync::{OwnedLock, Table};
use crate::types::{DriverResult, OutOfMemoryCause, PoolKind, Result};

#[derive(Default)]
pub(super) struct Expandable {
    /// The address space of each stream's arena, indexed by its number.
    of_streams: Table<Mutex<Mappings>>,
    /// The address space of each private pool's arena, indexed by its number among them.
    of_pools: Table<Mutex<Mappings>>,
}

impl Source for Expandable {
    fn serves(&self, arena: &Arena) -> bool {
        !arena.is_shared() && arena.config().expandable_segments
    }

    fn is_hopeless(&self, _context: &Context, _size: u64) -> bool {
        false
    }

    /// Maps pages until a request has room, and allocates it there. If a page is refused, pages mapped before it stay
    /// as free memory. Pages use up the charge as they are mapped; dropping the charge refunds the rest.
    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Grown {
        let mut charge = context.charge(wanted.parameters.arena, wanted.segment_size)?;
        let own = self.mappings(wanted.parameters.arena);
        let free = try_lock(own);
        let has_waited = free.is_none();
        let mut mappings = free.unwrap_or_else(|| lock(own));
        // Another thread may have mapped suitable pages in the meantime.
        if has_waited && let Some(block) = context.arenas.search_again(&wanted.parameters) {
            return Ok(block);
        }
        let mut mapped = None;
        let mut total = 0;
        let mut covered = wanted.segment_size;
        loop {
            let range = match next(context, mapped.take(), wanted, &mut charge) {
                Ok(block) => return Ok(block),
                Err(Some(range)) => range,
                Err(None) => {
                    reserve(context, &mut mappings, &wanted.parameters)?;
                    continue;
                }
            };
            // As in PyTorch, the charge does not cover what the request is rounded up by to whole pages. A plan maps no
            // more than that. But if other threads take memory that it relied on, new pages replace that.
            covered = covered.max(wanted.parameters.request.size.next_multiple_of(mappings.page(range.segment).get()));
            total += range.len;
            if total > covered {
                charge.extend(wanted.parameters.arena, total - covered)?;
                covered = total;
            }
            let (len, done) = context.turns.take(|| mappings.with(context.address_space()).map_pages(range));
            mapped = (len > 0).then_some(PageRange { len, ..range });
            let Err(error) = done else { continue };
            if let Some(range) = mapped {
                // Pages that the driver refused to unmap are free memory.
                let mut entered = context.arenas.settle(wanted.parameters.arena);
                add_pages(&mut entered, range, wanted, &mut charge);
            }
            return Err(context.refused(context.failure(error, OutOfMemoryCause::Device)));
        }
    }

    /// Unmaps free whole pages, and gives back the reservations whose last pages these were. Unmaps nothing while the
    /// stream's work is being captured, because it cannot be waited for.
    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()> {
        let (id, is_shared) = {
            let arena = arena.lock();
            (arena.id(), arena.is_shared())
        };
        if is_shared {
            return Ok(()); // its pages are those of `Compact`
        }
        let (table, number) = self.place(id);
        let (Some(driver), Some(mappings)) = (context.driver.address_space(), table.get(number)) else {
            return Ok(());
        };
        let mut mappings = lock(mappings);
        let mut mappings = mappings.with(driver);
        let mut entered = context.arenas.enter(arena.lock());
        let ranges = entered.arena().store_mut().remove_free_pages(pool);
        if ranges.is_empty() {
            return Ok(());
        }
        let _returning = context.returning.begin();
        entered.pages_leave(ranges.iter().copied());
        let stream = entered.arena().stream();
        drop(entered);
        let (may_unmap, mut result) = match context.wait_for_work(stream) {
            Ok(is_over) => (is_over, Ok(())),
            Err(error) => (false, Err(error)),
        };
        for range in ranges.iter().copied() {
            let asleep = mappings.asleep_in(range);
            let mut unmapped = 0;
            if may_unmap && result.is_ok() {
                (unmapped, result) = mappings.unmap_pages(range);
            }
            let (offset, len) = (range.offset + unmapped, range.len - unmapped);
            let kept = (len > 0).then_some(PageRange { offset, len, ..range });
            // Pages of paused memory are not there any more, and leave as if they had just come back.
            let left = asleep - kept.map_or(0, |kept| mappings.asleep_in(kept));
            context.arenas.statistics().resumed_to_leave(left);
            let mut entered = context.arenas.enter(arena.lock());
            if let Some(kept) = kept {
                entered.arena().store_mut().add_pages(kept);
            }
            entered.pages_left(pool, unmapped, kept);
        }
        for PageRange { segment, .. } in ranges {
            if arena.lock().remove_unmapped(segment) {
                mappings.release(segment);
            }
        }
        result.map_err(|error| context.error(error))
    }

    fn release_unused_addresses(&self, context: &Context, arena: ArenaId) {
        let Some(driver) = context.driver.address_space() else { return };
        let mut mappings = lock(self.mappings(arena));
        for segment in mappings.segments() {
            if context.arenas.of(arena).lock().remove_unmapped(segment) {
                mappings.with(driver).release(segment);
            }
        }
    }

    fn page_runs(&self, arena: ArenaId) -> Vec<(Base, u64, u64)> {
        self.page_runs(arena)
    }

    fn paused_bytes(&self, arena: ArenaId) -> u64 {
        lock(self.mappings(arena)).asleep()
    }

    fn export(&self, context: &Context, arena: ArenaId, bytes: PageRange) -> Option<DriverResult<(Vec<Piece>, u64)>> {
        let (table, number) = self.place(arena);
        let mut mappings = lock(table.get(number)?);
        if !mappings.has(bytes.segment) {
            return None;
        }
        let (chunks, offset) = mappings.chunks_of(bytes.segment, bytes.offset..bytes.end());
        let pieces = mappings.with(context.address_space()).export(&chunks);
        Some(pieces.map(|pieces| (pieces, offset)))
    }

    fn pause(&self, context: &Context, arena: ArenaId) -> Result<()> {
        self.give_pages_back(context, arena).map_err(|error| context.error(error))
    }

    fn resume(&self, context: &Context, arena: ArenaId, limits: Limits) -> Grown<()> {
        self.take_pages_again(context, arena, limits)
    }
}

impl Expandable {
    fn mappings(&self, arena: ArenaId) -> &Mutex<Mappings> {
        let (table, number) = self.place(arena);
        table.get_or_init(number, Mutex::default)
    }

    fn place(&self, arena: ArenaId) -> (&Table<Mutex<Mappings>>, u32) {
        let of_pool = arena.number_of_private().map(|number| (&self.of_pools, number));
        of_pool.unwrap_or((&self.of_streams, arena.get()))
    }
}

/// Adds the mapped pages to the arena, and allocates the request where there is room for it.
///
/// # Errors
/// The pages to map next, or `None` if address space must be reserved.
fn next(
    context: &Context,
    mapped: Option<PageRange>,
    wanted: &Wanted<'_>,
    charge: &mut Charge<'_>,
) -> Result<AllocatedBlock, Option<PageRange>> {
    let parameters = &wanted.parameters;
    let request = &parameters.request;
    let clock = context.arenas.clock(request.pool);
    let mut entered = context.arenas.settle(parameters.arena);
    let grown = mapped.map(|range| add_pages(&mut entered, range, wanted, charge));
    let store = entered.arena().store_mut();
    let grown = grown.filter(|grown| store.blocks[*grown].size >= request.size);
    let free = grown.map_or_else(|| store.room_for(request), Ok)?;
    let block = settled(store.take_new(free, request, clock));
    entered.record(parameters, &block);
    Ok(block)
}

/// Adds mapped pages to the arena. Returns the free block that contains them.
fn add_pages(entered: &mut Entered<'_>, range: PageRange, wanted: &Wanted<'_>, charge: &mut Charge<'_>) -> BlockId {
    entered.pages_mapped(range, charge.use_up(range.len), &wanted.parameters);
    entered.arena().store_mut().add_pages(range)
}

/// Reserves address space for a request, with pages of the size that the settings ask for.
fn reserve(context: &Context, mappings: &mut Mappings, parameters: &Parameters) -> Grown<()> {
    let Parameters { request: Request { pool, size, .. }, arena, .. } = *parameters;
    let page = context.arenas.of(arena).lock().config().page(pool);
    let page = page.checked_next_multiple_of(context.address_space().granularity().get()).and_then(NonZeroU64::new);
    context.reserve(parameters, size, page, mappings).map(drop)
}
