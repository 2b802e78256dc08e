//! Which addresses are live.

use std::collections::BTreeMap;

use accelerator_core::DevicePtr;

use crate::calls::Call;
use crate::outcome::Outcome;

/// Ranges of addresses that overlap nowhere, as lengths by trace address.
#[derive(Default)]
pub(super) struct LiveRanges(BTreeMap<u64, u64>);

impl LiveRanges {
    /// Adds a range that `method` returned, unless it overlaps one that is live.
    pub(super) fn add<P: DevicePtr>(&mut self, method: Call, at: P, len: u64) -> Outcome {
        let (address, method) = (at.trace_address(), method.name());
        let before = self.0.range(..address.saturating_add(len)).next_back();
        if let Some((start, live)) = before.filter(|(start, live)| *start + **live > address) {
            return Err(format!(
                "`{method}` of {len} bytes returned {address:#x}, which overlaps the {live} bytes at {start:#x}, which \
                 are live"
            )
            .into());
        }
        self.0.insert(address, len);
        Ok(())
    }

    /// Removes the range that begins here. Call it before the range is given back: then it may be returned again.
    pub(super) fn remove<P: DevicePtr>(&mut self, at: P) {
        self.0.remove(&at.trace_address());
    }
}
