//! Allocating chosen bytes, in stores whose free bytes can be found by position.

use super::store::{AllocatedBlock, Store};
use crate::alloc::blocks::{Block, BlockId, Owner, State};
use crate::alloc::settings::Request;

impl Store {
    /// Turns free bytes into one block that is on no list.
    pub(crate) fn claim(&mut self, position: u64, size: u64, owner: Owner) -> BlockId {
        let (mut at, end) = (position, position + size);
        let mut claimed = None;
        while at < end {
            let Some(free) = self.free.at(&self.blocks, at) else { unreachable!("the bytes are free") };
            let block = &self.blocks[free];
            let (offset, len) = (at - block.position, end.min(block.end()) - at);
            let part = self.claim_part(free, offset, len, owner);
            at += len;
            match claimed {
                None => claimed = Some(part),
                Some(claimed) => self.blocks.merge_next(claimed, part),
            }
        }
        claimed.unwrap_or_else(|| unreachable!("requests are not empty"))
    }

    /// Allocates a part of a free block.
    #[inline(always)]
    pub(crate) fn take_part(&mut self, free: BlockId, offset: u64, request: &Request, owner: Owner) -> AllocatedBlock {
        let Request { requested, size, .. } = *request;
        let block = &self.blocks[free];
        if offset == 0 && size < block.size {
            let front = Block { state: State::Allocated, requested, owner, ..block.part(0, size) };
            let (segment, position) = (front.segment, front.position);
            let front = self.split_front_outside(free, block.owner, front);
            return self.allocated_at(front, segment, position, size);
        }
        let id = self.claim_part(free, offset, size, owner);
        self.blocks[id].requested = requested;
        self.allocated(id)
    }

    /// Turns a part of a free block into a block that is on no list.
    pub(crate) fn claim_part(&mut self, free: BlockId, offset: u64, size: u64, owner: Owner) -> BlockId {
        let block = &self.blocks[free];
        let behind = block.size - offset - size;
        if offset == 0 && behind > 0 {
            let front = Block { state: State::Allocated, owner, ..block.part(0, size) };
            return self.split_front_outside(free, block.owner, front);
        }
        self.free.unlist::<false>(&mut self.blocks, free);
        self.split_ends(free, offset, behind);
        let block = &mut self.blocks[free];
        (block.state, block.owner, block.below) = (State::Allocated, owner, [None; 2]);
        free
    }
}
