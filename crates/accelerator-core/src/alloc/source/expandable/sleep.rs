//! Memory that sleeps: its pages go back to the driver, and its addresses and blocks stay.

use super::Expandable;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::Base;
use crate::alloc::driver::Mappings;
use crate::alloc::source::context::{Context, Failure, Grown};
use crate::alloc::source::interface::Limits;
use crate::sync::primitives::lock;
use crate::types::{DriverResult, OutOfMemoryCause};

impl Expandable {
    /// Returns where the arena's pages are, asleep or not: runs of adjacent pages, each with the start of its
    /// reservation, the offset from there, and the length.
    pub(super) fn page_runs(&self, arena: ArenaId) -> Vec<(Base, u64, u64)> {
        lock(self.mappings(arena)).page_runs()
    }

    /// Gives all pages of an arena back to the driver. If the driver refuses one, it and all later ones stay mapped.
    pub(super) fn give_pages_back(&self, context: &Context, arena: ArenaId) -> DriverResult<()> {
        let Some(driver) = context.driver.address_space() else { return Ok(()) };
        let mut mappings = lock(self.mappings(arena));
        let (bytes, result) = mappings.with(driver).put_to_sleep();
        context.arenas.statistics().paused(bytes);
        result
    }

    /// Maps new pages where those were that went back. If the driver refuses one, that and all later ones stay away. If
    /// it has no more memory, all are away again, unless the limits are lifted: then other pages have contents.
    pub(super) fn take_pages_again(&self, context: &Context, arena: ArenaId, limits: Limits) -> Grown<()> {
        let Some(driver) = context.driver.address_space() else { return Ok(()) };
        let mut mappings = lock(self.mappings(arena));
        let is_refused = |woken: &_| matches!(woken, Err(Failure::Refused(OutOfMemoryCause::Device)));
        let mut take = || {
            let woken = wake(context, arena, &mut mappings, limits);
            if is_refused(&woken) && matches!(limits, Limits::Hold) {
                // In this turn, since a thread that waits for its end may need only the pages that came first.
                let (bytes, _) = mappings.with(driver).put_to_sleep();
                context.arenas.statistics().paused(bytes);
            }
            woken
        };
        let turn = context.turns.begin();
        let woken = take();
        if is_refused(&woken)
            && let Some(_alone) = turn.alone()
        {
            return take();
        }
        woken
    }
}

fn wake(context: &Context, arena: ArenaId, mappings: &mut Mappings, limits: Limits) -> Grown<()> {
    let asleep = mappings.asleep();
    if asleep == 0 {
        return Ok(()); // a charge of nothing would be refused above a limit that was lowered
    }
    let mut charge = match limits {
        Limits::Hold => context.charge(arena, asleep)?,
        Limits::Lifted => context.charge_without_limit(asleep),
    };
    let (bytes, result) = mappings.with(context.address_space()).wake();
    charge.use_up(bytes);
    context.arenas.statistics().resumed(bytes);
    result.map_err(|error| context.refused(context.failure(error, OutOfMemoryCause::Device)))
}
