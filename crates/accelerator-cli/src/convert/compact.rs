//! What was allocated under the policy `compact` before a history starts, rebuilt by requests.
//!
//! The policy chooses where a request goes. So its memory is filled range by range, gaps too; then the gaps are free again, for
//! the blocks that were put together out of such.

use std::io;

use super::layout::Rebuild;
use super::survey::{EarlyBlock, EarlySegment};

/// Smaller requests would not be served by the same pool.
const LEAST_GAP: u64 = 64 << 10;

impl<'a> Rebuild<'a, '_> {
    pub(super) fn compact(&mut self, ranges: &[(EarlySegment, Vec<&'a EarlyBlock>)]) -> io::Result<()> {
        for (range, blocks) in ranges {
            let stream = self.start.streams.of(range.stream);
            let mut end = range.address;
            for block in blocks {
                self.fill_gap(block.address.saturating_sub(end), stream)?;
                self.block(block, block.requested)?;
                let size =
                    block.size.unwrap_or_else(|| self.recorded.rounded(block.requested.min(range.size)));
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
