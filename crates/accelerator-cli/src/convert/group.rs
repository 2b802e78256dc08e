//! The entries of a history between two calls of the program, and what they reveal about the next request: did the
//! driver refuse memory, was the cache emptied, and could the request have used the blocks that were completed last?
//!
//! Our own notes answer these questions. A history from PyTorch has the same entries in all these cases, so the answer
//! is guessed here.

use accelerator_core::{AllocatorConfig, MIB};

use super::entries::Live;
use super::segments::Segment;

/// Entries that are not yet assigned to a call.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// A block that was freed, and that no other stream used according to the entries.
    pub(super) freed: Option<Live>,
    /// Blocks that other streams have finished with.
    pub(super) completed: Vec<Live>,
    /// Blocks that other streams finished with after the driver refused.
    pub(super) completed_late: Vec<Live>,
    /// Segments that were released.
    pub(super) given_back: Vec<Segment>,
    /// Whether pages of expandable segments were released, which happens only to all of them at once.
    pub(super) unmapped: bool,
    /// Whether a segment was created, or pages were mapped.
    pub(super) made: bool,
    /// Whether the last memory was mapped pages.
    pub(super) mapped_last: bool,
    /// The number of known refusals by the driver.
    pub(super) refused: u64,
}

/// The request with which the group ends.
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) stream: u32,
    pub(super) failed: bool,
}

/// The state of the history at the request.
pub(super) struct State<'a> {
    pub(super) config: &'a AllocatorConfig,
    /// Whether there are segments that are entirely free.
    pub(super) has_idle: bool,
    /// Whether there are blocks that other streams use.
    pub(super) has_pending: bool,
}

/// The maximum number of driver calls of an allocation: the first, after releasing oversize blocks, and after releasing
/// all free memory.
const MOST_ATTEMPTS: u64 = 3;

/// The operations that lead to the same entries.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Blocks that are free before the request.
    pub(super) before: Vec<Live>,
    /// Blocks that become free while the request is served.
    pub(super) behind: Vec<Live>,
    /// Whether the cache is emptied before the request.
    pub(super) empties_cache: bool,
    /// The number of refusals by the driver.
    pub(super) refused: u64,
}

impl Request {
    /// Returns whether this block can serve the request once it is free.
    fn may_take(&self, block: &Live, config: &AllocatorConfig) -> bool {
        let rounded = |bytes: u64| config.rounded(bytes.min(1 << 60));
        let (size, own) = (rounded(self.bytes), rounded(block.bytes));
        // The whole segment is available if nothing else is in it.
        let free = block.segment.unwrap_or(own);
        let same_pool = (own <= MIB) == (size <= MIB);
        let fits = match size >= config.max_split_size {
            true => free < size.saturating_add(config.max_non_split_rounding),
            false => free < config.max_split_size,
        };
        same_pool && free >= size && fits
    }
}

impl Group {
    pub(super) fn gives_back(&self) -> bool {
        self.unmapped || !self.given_back.is_empty()
    }

    /// Returns the plan that the notes describe.
    pub(super) fn told(self, failed: bool) -> Plan {
        let before = self.freed.into_iter().chain(self.completed).collect();
        // If the driver refused a request as too large, it was not tried again, but it would be in a replay.
        let refused = if failed && self.refused > 0 { MOST_ATTEMPTS } else { self.refused };
        Plan { before, behind: self.completed_late, empties_cache: false, refused }
    }

    /// Returns the most likely plan, if there are no notes.
    pub(super) fn guessed(self, request: &Request, state: &State<'_>) -> Plan {
        let gives_back = self.gives_back();
        let Self { freed, completed, given_back, unmapped, made, .. } = self;
        // Whether the block would have served the request if it had been free in time.
        let serves = |block: &Live| block.stream == request.stream && request.may_take(block, state.config);
        let missed = freed.iter().chain(&completed).any(serves);
        let (at_once, freed_late): (Vec<_>, Vec<_>) = freed.into_iter().partition(|block| !serves(block));
        let all_behind = |refused| Plan {
            before: at_once.clone(),
            behind: freed_late.iter().chain(&completed).copied().collect(),
            empties_cache: false,
            refused,
        };
        if request.failed {
            return all_behind(MOST_ATTEMPTS);
        }
        if made && missed {
            // If there was nothing to release, it is enough that the blocks are not free yet.
            return all_behind(u64::from(gives_back));
        }
        let everything = !state.has_idle && !state.has_pending;
        let empties_cache = unmapped || (!given_back.is_empty() && (!made || everything));
        let is_oversize = |segment: &Segment| segment.size >= state.config.max_split_size;
        let collects = state.config.garbage_collection_threshold > 0.0;
        let released = !given_back.is_empty() && !empties_cache && !collects;
        let oversize = released && given_back.iter().all(is_oversize);
        let before = at_once.into_iter().chain(freed_late).chain(completed).collect();
        Plan { before, behind: Vec::new(), empties_cache, refused: u64::from(oversize) }
    }
}
