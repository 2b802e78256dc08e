//! What a history tells between two calls of the program, and what it says of the next: did the driver refuse memory, was the
//! cache emptied, and could the request have had the blocks that were completed last?
//!
//! Notes of ours tell that. A history of PyTorch's has the same entries for all of it, which are weighed here.

use accelerator_core::{AllocatorConfig, MIB};

use super::entries::Live;
use super::segments::Segment;

/// Entries of which it is not known yet what they belong to.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// A block that was freed, and that no other stream used as far as the entries tell.
    pub(super) freed: Option<Live>,
    /// Blocks that other streams are done with.
    pub(super) completed: Vec<Live>,
    /// And those that they were done with after the driver refused.
    pub(super) completed_late: Vec<Live>,
    /// Segments that went back.
    pub(super) given_back: Vec<Segment>,
    /// Whether pages of expandable segments did, which only all at once do.
    pub(super) unmapped: bool,
    /// Whether a segment was made, or pages were mapped.
    pub(super) made: bool,
    /// Whether any were when memory was last asked for.
    pub(super) mapped_last: bool,
    /// How often the driver is known to have refused.
    pub(super) refused: u64,
}

/// What the group ends with.
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) stream: u32,
    pub(super) failed: bool,
}

/// The state of the history when the request is made.
pub(super) struct State<'a> {
    pub(super) config: &'a AllocatorConfig,
    /// Whether there are segments of which all is free.
    pub(super) has_idle: bool,
    /// Whether there are blocks that other streams use.
    pub(super) has_pending: bool,
}

/// An allocation asks the driver so often at most: at first, after oversize blocks went back, and after all did.
const MOST_ATTEMPTS: u64 = 3;

/// What leads to the same.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Blocks that the request finds free.
    pub(super) before: Vec<Live>,
    /// Blocks that come free while the request is served.
    pub(super) behind: Vec<Live>,
    /// Whether the cache is emptied ahead of it.
    pub(super) empties_cache: bool,
    /// How often the driver refuses.
    pub(super) refused: u64,
}

impl Request {
    /// Whether it is served by this block once that is free.
    fn may_take(&self, block: &Live, config: &AllocatorConfig) -> bool {
        let rounded = |bytes: u64| config.rounded(bytes.min(1 << 60));
        let (size, own) = (rounded(self.bytes), rounded(block.bytes));
        // All of its segment, where nothing else is in it.
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

    /// As the notes say.
    pub(super) fn told(self, failed: bool) -> Plan {
        let before = self.freed.into_iter().chain(self.completed).collect();
        // One that the driver refused as too large was not asked for again, but would be in a replay.
        let refused = if failed && self.refused > 0 { MOST_ATTEMPTS } else { self.refused };
        Plan { before, behind: self.completed_late, empties_cache: false, refused }
    }

    /// Without notes.
    pub(super) fn guessed(self, request: &Request, state: &State<'_>) -> Plan {
        let gives_back = self.gives_back();
        let Self { freed, completed, given_back, unmapped, made, .. } = self;
        // It would have had such a block, had that been free when it looked.
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
            // With nothing to give back it is enough that they are not free.
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
