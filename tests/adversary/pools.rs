//! Steps with private pools.

use accelerator_core::backend_kit::lock;
use accelerator_core::{Error, Keep, MemPoolId, MemPoolRoute};

use super::captured::Captured;
use super::machine::Machine;
use super::program::chosen;

impl Machine {
    pub(super) fn drop_pool(&mut self, nth: usize) {
        let Some(nth) = chosen(nth, self.pools.len()) else { return };
        if self.pools[nth].is_paused() {
            return;
        }
        let id = self.pools[nth].id();
        let (ended, kept) = std::mem::take(&mut self.routes).into_iter().partition(|(pool, _)| *pool == id);
        self.routes = kept;
        let ended: Vec<(MemPoolId, MemPoolRoute)> = ended;
        ended.into_iter().for_each(|(_, route)| self.device.allocator().end_allocate_to_pool(route));
        drop(self.pools.swap_remove(nth));
    }

    pub(super) fn pause(&mut self, nth: usize, keep: bool) {
        let Some(nth) = chosen(nth, self.pools.len()) else { return };
        let (pool, keeps) = (self.pools[nth].id(), if keep { Keep::Host } else { Keep::Nothing });
        let paused = {
            let _capturing = lock(&self.capturing);
            self.pools[nth].pause(keeps)
        };
        let refused = matches!(paused, Err(Error::MemPool { .. })); // it is paused, or it is of the other kind
        if !refused && (self.done(paused).is_none() || !keep) {
            let owned = self.buffers.iter_mut().chain(self.graphs.iter_mut().map(Captured::output_mut));
            owned.filter(|owned| owned.pool == Some(pool)).for_each(|owned| owned.set(None));
        }
    }
}
