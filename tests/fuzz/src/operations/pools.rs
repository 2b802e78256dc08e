//! Private pools, routes to them, and checkpoints.

use accelerator_core::{Error, MemPoolId, MemPoolRequests};

use super::bytes::Bytes;
use super::machine::{Machine, STREAMS};

impl Machine {
    fn pool(&self, bytes: &mut Bytes) -> MemPoolId {
        bytes.one_of(&self.pools)
    }

    pub(super) fn retain_pool(&mut self, bytes: &mut Bytes) {
        let pool = self.pool(bytes);
        self.allocator().retain_pool(pool).unwrap();
        *self.uses.entry(pool).or_default() += 1;
    }

    /// Only as often as the pool was retained here: the other uses belong to routes and graphs.
    pub(super) fn release_pool(&mut self, bytes: &mut Bytes) {
        let pool = self.pool(bytes);
        if let Some(uses) = self.uses.get_mut(&pool).filter(|uses| **uses > 0) {
            *uses -= 1;
            self.allocator().release_pool(pool).unwrap();
        } else if self.allocator().pool_uses(pool) == 0 {
            assert!(matches!(self.allocator().release_pool(pool), Err(Error::MemPool { .. })));
        }
    }

    pub(super) fn begin_route(&mut self, bytes: &mut Bytes, injected: u64) {
        const MOST: usize = 8;
        let pool = self.pool(bytes);
        let requests = match bytes.below(4) {
            0 => MemPoolRequests::All,
            1 => MemPoolRequests::Stream(self.streams[bytes.below(STREAMS)]),
            2 => MemPoolRequests::ThisThread,
            _ => MemPoolRequests::Where(Box::new(|stream| stream.get().is_multiple_of(2))),
        };
        if self.routes.len() < MOST {
            match self.allocator().begin_allocate_to_pool(pool, requests) {
                Ok(route) => self.routes.push(route),
                Err(error) => self.allow(Some(error), injected),
            }
        }
    }

    pub(super) fn end_route(&mut self, bytes: &mut Bytes) {
        if !self.routes.is_empty() {
            let route = self.routes.remove(bytes.below(self.routes.len()));
            self.allocator().end_allocate_to_pool(route);
        }
    }

    pub(super) fn change_pool(&mut self, bytes: &mut Bytes, injected: u64) {
        let (pool, allocator) = (self.pool(bytes), self.allocator());
        let changed = match bytes.below(6) {
            0 => allocator.set_pool_use_on_oom(pool, bytes.flag()),
            1 => allocator.set_pool_no_split(pool),
            2 => allocator.empty_pool_cache(pool),
            3 => allocator.trim_pool(pool),
            4 => allocator.keep_pool_for_graphs(pool),
            _ => allocator.set_pool_name(pool, "a pool"),
        };
        self.allow_refusal(changed.err(), injected);
    }

    pub(super) fn checkpoint(&mut self, bytes: &mut Bytes, injected: u64) {
        const MOST: usize = 4;
        match self.allocator().checkpoint_pool(self.pool(bytes)) {
            Ok(checkpoint) if self.checkpoints.len() < MOST => self.checkpoints.push(checkpoint),
            Ok(_) => {}
            Err(error) => self.allow_refusal(Some(error), injected),
        }
    }

    pub(super) fn restore(&mut self, bytes: &mut Bytes, injected: u64) {
        let Some(checkpoint) = self.checkpoints.get(bytes.below(self.checkpoints.len())) else { return };
        let inside = self.allocator().pool_allocations(checkpoint.pool());
        let (live, others) = self.live.drain(..).partition(|allocation| inside.contains(&allocation.ptr()));
        self.live = others;
        match self.allocator().restore_pool(checkpoint, live) {
            Ok(restored) => self.live.extend(restored),
            Err(failed) => {
                self.live.extend(failed.allocations);
                self.allow_refusal(Some(failed.error), injected);
            }
        }
    }
}
