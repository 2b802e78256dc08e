//! Memory that sleeps: its pages go back to the driver, and its addresses and blocks stay.

use super::Expandable;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::Base;
use crate::alloc::source::context::{Context, Grown};
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

    /// Maps new pages where those were that went back. If the driver refuses one, that and all later ones stay away.
    pub(super) fn take_pages_again(&self, context: &Context, arena: ArenaId, limits: Limits) -> Grown<()> {
        let Some(driver) = context.driver.address_space() else { return Ok(()) };
        let mut mappings = lock(self.mappings(arena));
        let asleep = mappings.asleep();
        if asleep == 0 {
            return Ok(()); // a charge of nothing would be refused above a limit that was lowered
        }
        let mut charge = match limits {
            Limits::Hold => context.charge(arena, asleep)?,
            Limits::Lifted => context.charge_without_limit(asleep),
        };
        let (bytes, result) = mappings.with(driver).wake();
        charge.use_up(bytes);
        context.arenas.statistics().resumed(bytes);
        result.map_err(|error| context.refused(context.failure(error, OutOfMemoryCause::Device)))
    }
}
