//! Allocation at a given address, and checkpoints of private pools.

use std::num::NonZeroU64;

use super::{Allocation, CachingAllocator};
use crate::alloc::arena::AllocatedBlock;
use crate::alloc::device::PoolState;
use crate::backend::Backend;
use crate::stream::{Instance, Stream};
use crate::sync::primitives::lock;
use crate::types::{DevicePtr, Error, MemPoolId, Result};

/// The state of a private pool's memory at one moment. PyTorch: the result of `getCheckpointState`.
#[derive(Clone, Debug)]
pub struct PoolCheckpoint {
    pub(super) owner: Instance,
    pub(super) state: PoolState,
}

impl PoolCheckpoint {
    /// Returns the pool.
    pub fn pool(&self) -> MemPoolId {
        self.state.pool
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// Allocates memory at this address of this stream and of the pool that the request goes to. Returns `None` unless
    /// these bytes are free, within one free block, and begin at a multiple of 512 bytes from the start of their
    /// segment. With [`Policy::Compact`](crate::Policy::Compact), which finds a place by itself, they are never free
    /// outside of private pools. PyTorch: `allocateWithAddress`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) for a size that no device can have;
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn allocate_at(&self, ptr: B::Ptr, bytes: NonZeroU64, stream: Stream<B>) -> Result<Option<Allocation<B>>> {
        stream.check(self.owner)?;
        let block = self.device.allocate_at(ptr.trace_address(), bytes, stream.id())?;
        Ok(block.map(|block| self.allocation(block, bytes, stream)))
    }

    /// Notes the state of a private pool's memory, to [set it back](Self::restore_pool) to it later. Waits for streams
    /// that still use freed blocks of it. PyTorch: `getCheckpointState`.
    ///
    /// # Errors
    /// [`Error::MemPool`](crate::Error::MemPool) if the pool does not exist, or a capture uses freed blocks of it.
    /// [`Error::Driver`](crate::Error::Driver) if an event cannot be queried or waited for.
    pub fn checkpoint_pool(&self, pool: MemPoolId) -> Result<PoolCheckpoint> {
        Ok(PoolCheckpoint { owner: self.owner, state: self.device.pool_state(pool)? })
    }

    /// Sets a private pool's memory back to a checkpoint: the blocks that were allocated then are allocated again, at
    /// the same addresses, and no others. The contents of the memory do not change. PyTorch: `setCheckpointPoolState`.
    ///
    /// `live` are all allocations in the pool now; they are freed. Returns those of the checkpoint, in the order of
    /// their addresses. Each counts as requested with the size of its block.
    ///
    /// # Errors
    /// * [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a checkpoint or an allocation of another device.
    /// * [`Error::MemPool`](crate::Error::MemPool) if `live` are not exactly the allocations in the pool, if the pool
    ///   no longer has the memory that it had, if another thread uses the pool meanwhile, during a capture, or if a
    ///   stream that used an allocation is being captured.
    /// * [`Error::Driver`](crate::Error::Driver) if waiting for streams that use the memory failed.
    ///
    /// The allocations come back, unless waiting failed or another thread used the pool meanwhile. Then they are freed,
    /// and none is allocated.
    pub fn restore_pool(
        &self,
        checkpoint: &PoolCheckpoint,
        live: Vec<Allocation<B>>,
    ) -> Result<Vec<Allocation<B>>, RestoreError<B>> {
        let owner = checkpoint.owner.check(self.owner, "the checkpoint");
        let checked = owner.and_then(|()| live.iter().try_for_each(|allocation| self.check_owner(allocation)));
        // PyTorch frees in this order, on which the statistics of split blocks depend.
        let mut ordered: Vec<_> = live.iter().collect();
        ordered.sort_unstable_by_key(|allocation| allocation.ptr().trace_address());
        let blocks: Vec<_> = ordered.into_iter().map(|allocation| (allocation.arena, allocation.block)).collect();
        let _kept = self.device.keep_pool(checkpoint.pool());
        let checked = checked.and_then(|()| self.device.check_pool_state(&checkpoint.state, &blocks));
        if let Err(error) = checked {
            return Err(RestoreError { allocations: live, error });
        }
        let restored = self.device.set_pool_state(&checkpoint.state, &blocks);
        let restored = restored.map_err(|error| RestoreError { allocations: Vec::new(), error })?;
        Ok(restored.into_iter().filter_map(|(block, stream)| self.whole(block, self.streams.get(stream)?)).collect())
    }

    /// As [`restore_pool`](Self::restore_pool), for a pool whose allocations all come from
    /// [`raw_alloc`](Self::raw_alloc).
    ///
    /// # Errors
    /// As for [`restore_pool`](Self::restore_pool).
    pub fn raw_restore_pool(&self, checkpoint: &PoolCheckpoint) -> Result<RestoredPool<B>> {
        let ptrs: Vec<_> = self.pool_allocations(checkpoint.pool());
        let live = {
            let mut table = lock(&self.raw);
            ptrs.iter().filter_map(|ptr| table.remove(ptr)).collect()
        };
        // With no lock held, since the capture function for the history is the user's.
        let (allocations, restored) = match self.restore_pool(checkpoint, live) {
            Ok(allocations) => (allocations, Ok(())),
            Err(RestoreError { allocations, error }) => (allocations, Err(error)),
        };
        let allocated = allocations.iter().map(Allocation::ptr).collect();
        lock(&self.raw).extend(allocations.into_iter().map(|allocation| (allocation.ptr(), allocation)));
        restored.map(|()| RestoredPool { freed: ptrs, allocated })
    }

    /// Returns the allocation of a whole block.
    fn whole(&self, block: AllocatedBlock, stream: Stream<B>) -> Option<Allocation<B>> {
        Some(self.allocation(block, NonZeroU64::new(block.size)?, stream))
    }
}

/// What [`raw_restore_pool`](CachingAllocator::raw_restore_pool) did. PyTorch: `RestoreResult`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredPool<B: Backend> {
    /// The pointers that were freed, in the order of their addresses.
    pub freed: Vec<B::Ptr>,
    /// The pointers that are allocated now, in the order of their addresses.
    pub allocated: Vec<B::Ptr>,
}

/// The error of setting a pool back to a checkpoint. Converting it into an [`Error`] drops the allocations, whose
/// memory then stays allocated.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct RestoreError<B: Backend> {
    /// The allocations that were handed over, still allocated; empty if they are freed.
    pub allocations: Vec<Allocation<B>>,
    /// The reason.
    pub error: Error,
}

impl<B: Backend> From<RestoreError<B>> for Error {
    fn from(failed: RestoreError<B>) -> Self {
        failed.error
    }
}

impl<B: Backend> std::fmt::Debug for RestoreError<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}
