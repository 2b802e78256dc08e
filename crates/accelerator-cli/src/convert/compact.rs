//! Rebuilds the memory that was allocated before a history starts, under the policy `compact`.
//!
//! The policy chooses the places of requests. So its memory is filled range by range, including gaps. Then the gaps are
//! freed, so that the remaining blocks can be assembled from them.

use std::io;

use super::layout::Rebuild;
use super::survey::{EarlyBlock, EarlySegment};

/// The smallest gap that is filled. Another pool would serve smaller requests.
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
        self.output.comment("the policy `compact` chooses their places")
    }

    fn fill_gap(&mut self, bytes: u64, stream: u32) -> io::Result<()> {
        if bytes > LEAST_GAP {
            let filler = self.output.allocate(bytes, stream)?;
            self.fillers.push(filler);
        }
        Ok(())
    }
}
