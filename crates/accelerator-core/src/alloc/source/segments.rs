//! Segments sized for a request. PyTorch: `alloc_block`, `release_blocks`.

use super::context::{Context, Grown};
use super::interface::{Source, Wanted};
use crate::alloc::arena::Arena;
use crate::alloc::arenas::settled;
use crate::sync::OwnedLock;
use crate::types::{PoolKind, Result};

#[derive(Default)]
pub(super) struct Segments;

impl Source for Segments {
    fn serves(&self, arena: &Arena) -> bool {
        !arena.is_shared() && !arena.config().expandable_segments
    }

    fn grow(&self, context: &Context, wanted: &Wanted<'_>) -> Grown {
        let Wanted { parameters, segment_size, .. } = wanted;
        let (mut entered, segment) = context.new_segment(parameters, *segment_size)?;
        let clock = context.arenas.clock(parameters.request.pool);
        let block = settled(entered.arena().take_from_new_segment(segment, &parameters.request, clock));
        entered.record(parameters, &block);
        Ok(block)
    }

    fn release(&self, context: &Context, arena: &OwnedLock<Arena>, pool: PoolKind) -> Result<()> {
        let mut arena = arena.lock();
        if !arena.is_shared() {
            let segments = arena.store_mut().detach_all(pool);
            context.give_back(arena, segments);
        }
        Ok(())
    }
}
