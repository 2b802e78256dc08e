//! Uses of blocks by streams other than their own.

use super::Block;
use super::slab::{Slab, UseId};
use crate::types::StreamId;

/// The uses of all blocks: one chain per block.
#[derive(Debug, Default)]
pub(crate) struct Uses(Slab<UseId, Use>);

#[derive(Debug)]
struct Use {
    user: User,
    /// The next use of the same block.
    next: Option<UseId>,
}

/// A stream that used a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) stream: StreamId,
    /// Whether all of this use was captured in a graph, so that none of it has run.
    pub(crate) is_captured: bool,
}

/// Streams that used a block. There is usually only one, so a single one needs no heap memory.
#[derive(Clone)]
pub(crate) struct Users {
    first: User,
    others: Vec<User>,
}

impl Users {
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(User)) {
        each(self.first);
        self.others.iter().copied().for_each(each);
    }

    pub(crate) fn count(&self) -> u32 {
        1 + self.others.len() as u32
    }
}

impl Uses {
    /// Records that a stream uses a block, unless that is already recorded.
    pub(crate) fn record(&mut self, block: &mut Block, user: User) {
        let mut last = None;
        let mut next = block.uses;
        while let Some(one) = next {
            let recorded = &mut self.0[one].user;
            if recorded.stream == user.stream {
                recorded.is_captured &= user.is_captured;
                return;
            }
            (last, next) = (next, self.0[one].next);
        }
        let noted = Some(self.0.insert(Use { user, next: None }));
        match last {
            Some(last) => self.0[last].next = noted,
            None => block.uses = noted,
        }
    }

    /// Removes and returns the uses of a block, if it has any.
    pub(crate) fn take(&mut self, block: &mut Block) -> Option<Users> {
        let first = block.uses.take()?;
        let Use { user, mut next } = self.0[first];
        let mut users = Users { first: user, others: Vec::new() };
        self.0.remove(first);
        while let Some(one) = next {
            users.others.push(self.0[one].user);
            self.0.remove(one);
            next = self.0[one].next;
        }
        Some(users)
    }
}
