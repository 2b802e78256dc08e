//! What a check of the whole allocator needs to know of pending blocks.

use super::{PendingBlock, PendingFrees};
use crate::sync::primitives::lock;

impl PendingFrees {
    /// Returns a pending block for each use that it waits for.
    pub(crate) fn uses(&self) -> Vec<PendingBlock> {
        let queues = self.queues.lock();
        let arriving = lock(&self.arriving);
        let recorded = queues.recorded.blocks().chain(queues.unrecorded.iter().map(|(_, block)| *block));
        let mut uses: Vec<_> = recorded.chain(arriving.uses.iter().map(|arrived| arrived.block)).collect();
        for free in &arriving.deferred {
            uses.extend(free.users.iter().map(|_| free.block));
        }
        uses
    }
}
