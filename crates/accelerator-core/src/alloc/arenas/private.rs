//! The arenas of private pools, and whether requests are routed to them.

use super::{Arenas, OfPool, in_force};
use crate::alloc::arena::{Arena, ArenaId, Private};
use crate::alloc::settings::Policy;
use crate::sync::{Gate, OwnedLock};
use crate::types::StreamId;

impl Arenas {
    /// Returns an arena without blocks for the requests of a stream to a private pool, or for those of all streams if
    /// it is [`StreamId::SHARED`].
    pub(crate) fn add_private(&self, stream: StreamId, private: Private) -> ArenaId {
        let mut setup = self.setup.lock_soon();
        let (config, recording) = (in_force(&setup.config, self.has_virtual_memory), setup.recording);
        let new = |number| {
            let id = ArenaId::private(number);
            let placement = (stream == StreamId::SHARED).then(|| (self.make_placement)(id));
            let arena = Arena::new(id, stream, placement, config, recording);
            OfPool { arena: OwnedLock::new(arena), gate: Gate::default() }
        };
        let vacant = &mut setup.vacant[usize::from(stream == StreamId::SHARED)];
        let number = vacant.pop().unwrap_or_else(|| self.of_pools.push(new).0);
        let id = ArenaId::private(number);
        self.of(id).lock().assign(stream, private, config, recording);
        id
    }

    /// Keeps an empty arena of a private pool that is gone for other pools.
    pub(crate) fn remove_private(&self, id: ArenaId) {
        let mut setup = self.setup.lock_soon();
        let mut arena = self.of(id).lock();
        let is_shared = arena.is_shared();
        arena.leave_pool();
        drop(arena);
        if let Some(gate) = self.gate(id) {
            gate.open();
        }
        setup.vacant[usize::from(is_shared)].extend(id.number_of_private());
    }

    /// Returns the gate of an arena of a private pool; `None` for others, which cannot be paused.
    #[inline(always)]
    pub(crate) fn gate(&self, id: ArenaId) -> Option<&Gate> {
        id.number_of_private().and_then(|number| self.of_pools.get(number)).map(|of_pool| &of_pool.gate)
    }

    /// Returns whether private pools have one arena for all streams, as long as nothing speaks against it.
    pub(crate) fn shares_pools(&self) -> bool {
        in_force(&self.setup.lock_soon().config, self.has_virtual_memory).policy == Policy::Compact
    }

    /// Sets whether the requests of streams may have to go to private pools. They take the slow path then, so that
    /// others pay nothing for routes.
    pub(crate) fn set_routed(&self, routed: bool) {
        let mut setup = self.setup.lock_soon();
        setup.routed = routed;
        for arena in self.of_streams().chain(self.shared()) {
            arena.lock().set_routed(routed);
        }
    }
}
