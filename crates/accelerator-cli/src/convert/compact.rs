//! Rebuilds what was allocated before a history starts, under the policy `compact`.
//!
//! The policy chooses the places of requests. So its memory is filled range by range, including gaps. Then the gaps are
//! freed, for the blocks that were assembled from such gaps.

use std::io;

use super::layout::Rebuild;
use super::survey::{EarlyBlock, EarlySegment};

/// Smaller requests would be served by another pool.
const LEAST_GAP: u64 = 64 << 10;

impl<'a> Rebuild<'a, '_> {
    pub(super) fn compact(&mut self, ranges: &[(EarlySegment, Vec<&'a EarlyBlock>)]) -> io::Result<()> {
        for (range, blocks) in ranges {
            let stream = self.start.streams.of(range.stream);
            let mut end = range.address;
            for block in blocks {
                self.fill_gap(block.address.saturating_sub(end), stream)?;
                self.block(block, block.requested)?;
                let size = block.size.unwrap_or_else(|| self.recorded.rounded(block.requested.min(range.size)));
                end = block.address.saturating_add(size);
            }
            self.fill_gap(range.address.saturating_add(range.size).saturating_sub(end), stream)?;
        }
        for id in std::mem::take(&mut self.fillers) {
            self.output.free(id)?;
        }
        self.output.comment("their places are left to the policy `compact`")
    }

    fn fill_gap(&mut self, bytes: u64, stream: u32) -> io::Result<()> {
        if bytes > LEAST_GAP {
            let filler = self.output.allocate(bytes, stream)?;
            self.fillers.push(filler);
        }
        Ok(())
    }
}
