//! Blocks that streams beside their own use, and when they are free after that. Pure bookkeeping, as the arena is.

use super::account::{Account, NoRoom};
use super::arena::Arena;
use super::block::{Block, BlockId, State, Use};
use crate::backend::DevicePtr;
use crate::types::StreamId;

/// Streams that used a block. Mostly there is one, so one needs no memory.
pub(super) struct Users {
    first: StreamId,
    others: Vec<StreamId>,
}

impl Users {
    #[inline]
    pub(super) fn for_each(&self, mut each: impl FnMut(StreamId)) {
        each(self.first);
        self.others.iter().copied().for_each(each);
    }
}

impl<P: DevicePtr> Arena<P> {
    /// Notes that a stream beside the block's own uses it.
    pub(super) fn record_use(&mut self, id: BlockId, stream: StreamId) {
        let mut last = None;
        let mut next = self.blocks[id].uses;
        while let Some(one) = next {
            if self.uses[one].stream == stream {
                return;
            }
            (last, next) = (next, self.uses[one].next);
        }
        let noted = Some(self.uses.insert(Use { stream, next: None }));
        match last {
            Some(last) => self.uses[last].next = noted,
            None => self.blocks[id].uses = noted,
        }
    }

    /// The user is done with the block, which stays active until the streams are done that used it: these. If there are none,
    /// nothing changes.
    pub(super) fn free_when_done(&mut self, id: BlockId) -> Option<Users> {
        let Block { size, pool, ref mut uses, .. } = self.blocks[id];
        let first = uses.take()?;
        let Use { stream, mut next } = self.uses[first];
        let mut users = Users { first: stream, others: Vec::new() };
        self.uses.remove(first);
        while let Some(one) = next {
            users.others.push(self.uses[one].stream);
            self.uses.remove(one);
            next = self.uses[one].next;
        }
        self.blocks[id].state = State::Pending(1 + users.others.len() as u32);
        self.account.pending_begun(pool, size, self.compact.is_none() && self.config.is_oversize(size));
        Some(users)
    }

    /// One of the streams that a freed block waits for is done with it. Whether that was the last.
    pub(super) fn use_completed(&mut self, id: BlockId, clock: u32) -> Result<bool, NoRoom> {
        match &mut self.blocks[id].state {
            State::Pending(uses @ 2..) => {
                *uses -= 1;
                Ok(false)
            }
            State::Pending(_) => self.make_free::<true>(id, clock, Account::pending_over).map(|()| true),
            State::Free | State::Allocated | State::Unmapped | State::Aliased => {
                unreachable!("only freed blocks wait for streams")
            }
        }
    }
}
