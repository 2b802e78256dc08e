//! Uses of blocks by streams other than their own.

use super::Block;
use super::slab::{Slab, UseId};
use crate::types::StreamId;

/// The uses of all blocks: one chain per block.
#[derive(Debug, Default)]
pub(crate) struct Uses(Slab<UseId, Use>);

#[derive(Debug)]
struct Use {
    stream: StreamId,
    /// The next use of the same block.
    next: Option<UseId>,
}

/// Streams that used a block. There is usually only one, so a single one needs no heap memory.
pub(crate) struct Users {
    first: StreamId,
    others: Vec<StreamId>,
}

impl Users {
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(StreamId)) {
        each(self.first);
        self.others.iter().copied().for_each(each);
    }

    pub(crate) fn count(&self) -> u32 {
        1 + self.others.len() as u32
    }
}

impl Uses {
    /// Records that a stream uses a block, unless that is already recorded.
    pub(crate) fn record(&mut self, block: &mut Block, stream: StreamId) {
        let mut last = None;
        let mut next = block.uses;
        while let Some(one) = next {
            if self.0[one].stream == stream {
                return;
            }
            (last, next) = (next, self.0[one].next);
        }
        let noted = Some(self.0.insert(Use { stream, next: None }));
        match last {
            Some(last) => self.0[last].next = noted,
            None => block.uses = noted,
        }
    }

    /// Removes and returns the uses of a block, if it has any.
    pub(crate) fn take(&mut self, block: &mut Block) -> Option<Users> {
        let first = block.uses.take()?;
        let Use { stream, mut next } = self.0[first];
        let mut users = Users { first: stream, others: Vec::new() };
        self.0.remove(first);
        while let Some(one) = next {
            users.others.push(self.0[one].stream);
            self.0.remove(one);
            next = self.0[one].next;
        }
        Some(users)
    }
}
