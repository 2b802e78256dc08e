//! Private pools that are paused: their pages go back to the driver, and come back at the same addresses.

use super::DeviceAllocator;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::Base;
use crate::alloc::mem_pools::Keeper;
use crate::alloc::source::{Failure, Limits};
use crate::sync::Step;
use crate::sync::primitives::lock;
use crate::types::{DriverErrorKind, Error, MemPoolId, OutOfMemoryCause, Result, StreamId};

impl DeviceAllocator {
    /// Begins to use memory. Until the step ends, its pool is not paused. Returns `None` for memory that cannot be
    /// paused.
    #[inline(always)]
    pub(crate) fn begin_use(&self, arena: ArenaId) -> Result<Option<Step<'_>>> {
        match self.arenas().gate(arena) {
            None => Ok(None),
            Some(gate) => gate.enter().map(Some).ok_or_else(|| {
                let pool = self.arenas().of(arena).lock().mem_pool();
                self.paused(pool)
            }),
        }
    }

    /// Begins to use all memory of a pool.
    pub(crate) fn begin_use_of_pool(&self, id: MemPoolId) -> Result<Vec<Step<'_>>> {
        let arenas = self.mem_pools.arenas(id);
        let uses = arenas.into_iter().map(|arena| self.begin_use(arena));
        uses.filter_map(Result::transpose).collect()
    }

    /// Closes a pool for pausing: waits for the requests and uses underway, and refuses all others until the pool is
    /// [opened](Self::open_pool).
    pub(crate) fn close_pool(&self, id: MemPoolId) -> Result<()> {
        if self.pending.has_captures() {
            return Err(self.pool_error(id, "cannot be paused while a graph is being captured"));
        }
        self.mem_pools.close(id, self.arenas()).map_err(|problem| self.pool_error(id, problem))?;
        let shared = self.refuse_shared(id, "cannot be paused while its memory is shared with other processes");
        shared.inspect_err(|_| self.open_pool(id))
    }

    /// Fails with this problem if a pool has memory that is shared with other processes.
    pub(crate) fn refuse_shared(&self, id: MemPoolId, problem: &'static str) -> Result<()> {
        let is_shared = self.mem_pools.arenas(id).into_iter().any(|arena| self.shared_blocks.are_in(arena));
        if is_shared { Err(self.pool_error(id, problem)) } else { Ok(()) }
    }

    /// Opens a closed pool, of whose contents no copy may run.
    pub(crate) fn open_pool(&self, id: MemPoolId) {
        self.mem_pools.open(id, self.arenas());
    }

    /// Notes that a copy between the host and a closed pool may still run on the default stream, since the wait for it
    /// failed.
    pub(crate) fn note_copy(&self, id: MemPoolId) {
        self.mem_pools.note_copy(id);
    }

    /// Waits for the copies that have been noted. A device that is lost does not run them any more.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver); [`Error::MemPool`](crate::Error::MemPool) while the default stream is
    /// being captured.
    pub(crate) fn wait_for_copies(&self, id: MemPoolId) -> Result<()> {
        let Some(copies) = self.mem_pools.copies(id) else { return Ok(()) };
        match self.memory.context.wait_for_work(StreamId::DEFAULT) {
            Ok(false) => {
                return Err(self.pool_error(id, "cannot be resumed while the default stream is being captured"));
            }
            Err(error) if error.kind != DriverErrorKind::DeviceLost => return Err(self.memory.context.error(error)),
            Ok(true) | Err(_) => {}
        }
        self.mem_pools.copies_over(id, copies);
        Ok(())
    }

    /// Returns whether the free memory of a pool must stay, too.
    pub(super) fn must_stay(&self, id: MemPoolId) -> bool {
        self.mem_pools.is_kept(id) || self.wait_for_copies(id).is_err()
    }

    /// Gives free memory of a closed pool back, unless a graph may use it. From then on, its pages stay.
    pub(crate) fn shrink_closed_pool(&self, id: MemPoolId) -> Result<Option<Keeper<'_>>> {
        self.wait_for_pool(id)?;
        self.reclaim(id)?;
        Ok(self.keep_pool(id))
    }

    /// Keeps all memory of a pool where it is, also if others need memory. Returns `None` if there is no such pool.
    pub(crate) fn keep_pool(&self, id: MemPoolId) -> Option<Keeper<'_>> {
        let _reclaiming = lock(&self.reclaiming); // no other thread is giving memory of it back then
        self.mem_pools.keep(id)
    }

    /// Returns where the pages of a pool are: runs of adjacent pages, each with the start of its reservation, the
    /// offset from there, and the length.
    pub(crate) fn page_runs(&self, id: MemPoolId) -> Vec<(Base, u64, u64)> {
        self.mem_pools.arenas(id).into_iter().flat_map(|arena| self.memory.page_runs(arena)).collect()
    }

    /// Returns the bytes of a pool that went back to the driver while it is paused.
    pub(crate) fn paused_bytes(&self, id: MemPoolId) -> u64 {
        self.mem_pools.arenas(id).into_iter().map(|arena| self.memory.paused_bytes(arena)).sum()
    }

    /// Gives the pages of a closed pool back to the driver, on which no work is running.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver). The pages that went back have come again then, or, if the driver
    /// refuses that, too, some are still away.
    pub(crate) fn give_pages_back(&self, id: MemPoolId) -> Result<()> {
        let arenas = self.mem_pools.arenas(id);
        self.memory.pause(&arenas).inspect_err(|_| {
            let _ = self.memory.resume(&arenas, Limits::Lifted);
        })
    }

    /// Maps new pages for a closed pool where pages went back. If memory runs out, gives the cache back and tries
    /// again. Meanwhile, the pages that came first are away again, since another thread may need only them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::Driver`](crate::Error::Driver). All pages that the
    /// driver takes are away again then.
    pub(crate) fn take_pages_again(&self, id: MemPoolId, limits: Limits) -> Result<()> {
        let arenas = self.mem_pools.arenas(id);
        let mut resumed = self.memory.resume(&arenas, limits);
        if matches!(resumed, Err(Failure::Refused(_))) {
            let _ = self.memory.pause(&arenas);
            if self.release_all().is_ok() {
                resumed = self.memory.resume(&arenas, limits);
            }
        }
        let failure = match resumed {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let _ = self.memory.pause(&arenas);
        Err(match failure {
            Failure::Error(error) => error,
            Failure::Refused(cause) => self.resume_refused(id, cause),
        })
    }

    fn resume_refused(&self, id: MemPoolId, cause: OutOfMemoryCause) -> Error {
        let bytes = self.page_runs(id).iter().map(|(_, _, len)| len).sum();
        self.no_memory_for(bytes, cause)
    }

    pub(super) fn paused(&self, id: MemPoolId) -> Error {
        self.pool_error(id, "is paused: resume it first")
    }
}
