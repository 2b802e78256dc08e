//! An allocation in one word.
#![allow(unsafe_code)] // whoever uses a key vouches for it

use std::num::NonZeroU64;

use super::{Allocation, CachingAllocator, PoolCheckpoint};
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::BlockId;
use crate::backend::Backend;
use crate::stream::Stream;
use crate::types::Result;

/// An [`Allocation`] in one word, for programs that have no room for more. PyTorch's tensors, for example, keep a
/// single pointer for their deleter.
///
/// Like an allocation, a key is not a guard. Unlike one, it can be copied, so its methods are unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocationKey(NonZeroU64);

impl AllocationKey {
    /// The number of bits that a key may have. The bits above are always zero, so they can hold the number of a device.
    pub const BITS: u32 = 56;

    /// Returns the word.
    #[inline(always)]
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }

    /// Returns the key of this word, which came from [`get`](Self::get).
    #[inline(always)]
    pub const fn new(word: NonZeroU64) -> Self {
        Self(word)
    }

    #[inline(always)]
    fn of(arena: ArenaId, block: BlockId) -> Option<Self> {
        arena.packed().map(|arena| Self(NonZeroU64::from(block.get()) | u64::from(arena) << 32))
    }

    #[inline(always)]
    pub(super) fn parts(self) -> (ArenaId, BlockId) {
        (ArenaId::unpacked((self.0.get() >> 32) as u32), BlockId::of_lower_half(self.0))
    }
}

impl<B: Backend> Allocation<B> {
    /// Turns the allocation into its key.
    ///
    /// # Errors
    /// The allocation itself, if its stream or pool has too high a number for a key: 2²³ or more.
    #[inline(always)]
    pub fn into_key(self) -> Result<AllocationKey, Self> {
        AllocationKey::of(self.arena, self.block).ok_or(self)
    }
}

impl<B: Backend> CachingAllocator<B> {
    /// As [`free`](Self::free), by key.
    ///
    /// # Safety
    /// The key came from an allocation of this allocator, which has not been freed since.
    #[inline(always)]
    pub unsafe fn free_by_key(&self, key: AllocationKey) {
        let (arena, block) = key.parts();
        self.device.free(arena, block);
    }

    /// Returns the key of the allocation that starts at this [`trace_address`](crate::DevicePtr::trace_address), if
    /// there is one. Looks at every block.
    pub fn key_at(&self, address: u64) -> Option<AllocationKey> {
        let block = self.device.allocated_at(address)?;
        AllocationKey::of(block.arena, block.block)
    }

    /// Returns the start and the size in bytes of the segment that contains this
    /// [`trace_address`](crate::DevicePtr::trace_address), if there is one. PyTorch: `getBaseAllocation`.
    pub fn segment_at(&self, address: u64) -> Option<(B::Ptr, u64)> {
        let (base, size) = self.device.segment_at(address)?;
        Some((Self::base_ptr(base), size))
    }

    /// As [`record_use`](Self::record_use), by key.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device.
    ///
    /// # Safety
    /// As for [`free_by_key`](Self::free_by_key).
    pub unsafe fn record_use_by_key(&self, key: AllocationKey, stream: Stream<B>) -> Result<()> {
        stream.check(self.owner)?;
        let (arena, block) = key.parts();
        self.device.record_use_unless_own(arena, block, stream.id());
        Ok(())
    }

    /// Returns the address of an allocation, and the size of its block in bytes, with what rounding added.
    ///
    /// # Safety
    /// As for [`free_by_key`](Self::free_by_key).
    pub unsafe fn block_by_key(&self, key: AllocationKey) -> (B::Ptr, u64) {
        let (arena, block) = key.parts();
        let block = self.device.arenas().of(arena).lock().store().allocated(block);
        (Self::ptr(&block), block.size)
    }

    /// As [`restore_pool`](Self::restore_pool), for a pool whose allocations are known by their keys.
    ///
    /// # Errors
    /// As for [`restore_pool`](Self::restore_pool), and [`Error::MemPool`](crate::Error::MemPool) if memory of the pool
    /// is shared with other processes.
    ///
    /// # Safety
    /// Nobody uses the keys of the pool's present allocations any more.
    pub unsafe fn restore_pool_by_key(&self, checkpoint: &PoolCheckpoint) -> Result<RestoredKeys<B>> {
        checkpoint.owner.check(self.owner, "the checkpoint")?;
        self.device
            .refuse_shared(checkpoint.pool(), "cannot be restored while its memory is shared with other processes")?;
        let _kept = self.device.keep_pool(checkpoint.pool());
        let live = self.device.allocated_in(checkpoint.pool());
        let blocks: Vec<_> = live.iter().map(|block| (block.arena, block.block)).collect();
        self.device.check_pool_state(&checkpoint.state, &blocks)?;
        let restored = self.device.set_pool_state(&checkpoint.state, &blocks)?;
        let allocated =
            restored.iter().map(|(block, _)| (Self::ptr(block), AllocationKey::of(block.arena, block.block)));
        Ok(RestoredKeys { freed: live.iter().map(Self::ptr).collect(), allocated: allocated.collect() })
    }
}

/// What [`restore_pool_by_key`](CachingAllocator::restore_pool_by_key) did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredKeys<B: Backend> {
    /// The pointers that were freed, in the order of their addresses.
    pub freed: Vec<B::Ptr>,
    /// The pointers that are allocated now, in the order of their addresses, each with its key if it
    /// [has one](Allocation::into_key).
    pub allocated: Vec<(B::Ptr, Option<AllocationKey>)>,
}
