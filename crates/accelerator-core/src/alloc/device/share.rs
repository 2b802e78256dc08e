//! Memory that other processes import.
#![allow(unsafe_code)] // exports segments

use std::collections::BTreeMap;
use std::sync::Arc;

use super::DeviceAllocator;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::{BlockId, PageRange, SegmentId};
use crate::share::{Description, Export, Form, Piece, SharedMemory};
use crate::sync::InUse;
use crate::sync::primitives::{Mutex, lock};
use crate::types::{Device, DriverErrorKind, DriverResult, Error, Result, SharingProblem};

/// The blocks that are shared.
#[derive(Debug, Default)]
pub(super) struct SharedBlocks {
    /// Their number in each arena.
    counts: Mutex<BTreeMap<ArenaId, usize>>,
    /// The segments that contain them, so that each is exported only once.
    exported: Mutex<InUse<(ArenaId, SegmentId), Export>>,
}

/// Counts a block as shared until it is dropped.
struct Counted {
    blocks: Arc<SharedBlocks>,
    arena: ArenaId,
}

impl SharedBlocks {
    fn count(self: &Arc<Self>, arena: ArenaId) -> Counted {
        *lock(&self.counts).entry(arena).or_default() += 1;
        Counted { blocks: Arc::clone(self), arena }
    }

    /// Returns whether an arena has shared blocks.
    pub(super) fn are_in(&self, arena: ArenaId) -> bool {
        lock(&self.counts).contains_key(&arena)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.blocks.counts);
        if let Some(count) = counts.get_mut(&self.arena) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.arena);
            }
        }
    }
}

impl DeviceAllocator {
    /// Shares the first `len` bytes of an allocated block with other processes. While they are shared or imported, the
    /// block's pool cannot be paused.
    pub(crate) fn share(&self, arena: ArenaId, block: BlockId, len: u64) -> Result<SharedMemory> {
        let _use = self.begin_use(arena)?;
        let counted = self.shared_blocks.count(arena); // before the use ends, after which the pool may be paused
        let (form, offset, pieces) = self.export(arena, block, len)?;
        let Device { kind, index } = self.memory.context.device;
        let uuid = self.driver().properties().uuid;
        let description = Description { kind: kind.name().to_owned(), ordinal: index, uuid, form, offset, len, pieces };
        SharedMemory::new(description, Box::new(counted)).map_err(|problem| self.not_shared(problem))
    }

    /// Exports the memory that contains the first bytes of a block. Returns the offset of the block there.
    fn export(&self, arena: ArenaId, block: BlockId, len: u64) -> Result<(Form, u64, Vec<Piece>)> {
        let locked = self.arenas().of(arena).lock();
        let blocks = &locked.store().blocks;
        let block = &blocks[block];
        let (segment, own) = (blocks.segment(block.segment), locked.private().source.is_some());
        let offset = block.position.wrapping_sub(segment.position);
        let (base, size) = (segment.base, segment.size);
        let bytes = PageRange { segment: block.segment, offset, len };
        drop(locked);
        if own {
            return Err(self.not_shared(SharingProblem::Unsupported("the memory is from the pool's own source")));
        }
        if let Some(pages) = self.memory.export(arena, bytes) {
            let (pieces, offset) = self.exported(pages)?;
            return Ok((Form::Pages, offset, pieces));
        }
        let mut all = lock(&self.shared_blocks.exported); // held meanwhile, so that it is exported once
        all.forget_unused();
        let export = all.get_or_make((arena, bytes.segment), || {
            // SAFETY: The segment has no pages, so the driver's `alloc` returned it. It cannot go back, since the block
            // is allocated.
            let exported = self.exported(unsafe { self.driver().export(base, size) })?;
            Ok::<_, Error>(Arc::new(Export::from(exported)))
        })?;
        Ok((Form::Segment, offset, vec![Piece { len: size, export }]))
    }

    fn exported<T>(&self, result: DriverResult<T>) -> Result<T> {
        result.map_err(|error| match error.kind {
            DriverErrorKind::Unsupported => self.not_shared(SharingProblem::Unsupported(error.name)),
            _ => self.memory.context.error(error),
        })
    }

    fn not_shared(&self, problem: SharingProblem) -> Error {
        Error::Sharing { device: self.memory.context.device, problem }
    }
}
