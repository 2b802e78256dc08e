//! PyTorch's policy as plain arithmetic: how large a request becomes, what it may take, what is cut.

use super::config::AllocatorConfig;
use crate::types::{MIB, PoolKind};

/// Every block is a multiple of this many bytes. PyTorch: `kMinBlockSize`.
pub(super) const MIN_BLOCK: u64 = 512;
/// The largest request, rounded, of the small pool. PyTorch: `kSmallSize`.
const SMALL_SIZE: u64 = MIB;
/// A segment of the small pool. PyTorch: `kSmallBuffer`.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// From here a request gets a segment of its own size, rounded up. PyTorch: `kMinLargeAlloc`.
const MIN_OWN_SEGMENT: u64 = 10 * MIB;
/// Such segments are multiples of this. PyTorch: `kRoundLarge`.
const SEGMENT_ROUNDING: u64 = 2 * MIB;
/// No device has this much; below it no size overflows. PyTorch: the check in `NativeCachingAllocator::allocate`.
pub(super) const TOO_LARGE: u64 = 1 << 60;

/// This share of so many bytes, rounded as PyTorch rounds it.
pub(super) fn share(fraction: f64, bytes: u64) -> u64 {
    (fraction * bytes as f64) as u64
}

/// A request, rounded, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Bytes asked for.
    pub(super) requested: u64,
    /// Bytes that its block must have.
    pub(super) size: u64,
    pub(super) pool: PoolKind,
    /// Bytes to take from the driver if no block is found.
    pub(super) segment: u64,
}

impl Request {
    /// The same where the driver gives no more than `largest` bytes at once: a smaller segment, if the block fits.
    pub(super) fn fitted(self, largest: u64) -> Self {
        let largest = largest - largest % MIN_BLOCK;
        Self { segment: if self.size <= largest { self.segment.min(largest) } else { self.segment }, ..self }
    }
}

impl AllocatorConfig {
    /// What becomes of a request for `requested` bytes, which are fewer than [`TOO_LARGE`].
    pub(super) fn request(&self, requested: u64) -> Request {
        let size = self.round(requested);
        let pool = if size <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large };
        let segment = if !self.caching {
            size
        } else if pool == PoolKind::Small {
            SMALL_SEGMENT
        } else if size < MIN_OWN_SEGMENT {
            // Whatever somebody set: a segment holds its block, which is a multiple of the smallest.
            self.large_segment_size.clamp(size, TOO_LARGE).next_multiple_of(MIN_BLOCK)
        } else {
            size.next_multiple_of(SEGMENT_ROUNDING)
        };
        Request { requested, size, pool, segment }
    }

    /// Bytes of the block for a request of so many, where none larger is taken whole; requests of 2⁶⁰ bytes and more, which no
    /// device has, count as 2⁶⁰. PyTorch: `round_size`.
    pub fn rounded(&self, requested: u64) -> u64 {
        self.round(requested.min(TOO_LARGE))
    }

    fn round(&self, requested: u64) -> u64 {
        let divisions = self.roundup_power2_divisions.of(requested);
        // More divisions than a u64 can hold in blocks wrap to 0, as in PyTorch.
        if divisions > 1 && requested > MIN_BLOCK.wrapping_mul(divisions) && requested >= MIN_BLOCK {
            return match (1 << requested.ilog2()) / divisions {
                0 => requested.next_power_of_two(),
                step => requested.next_multiple_of(step),
            };
        }
        requested.max(1).next_multiple_of(MIN_BLOCK)
    }

    /// Whether the request may have this free block, the smallest that is large enough.
    pub(super) fn may_take(&self, request: &Request, block: u64) -> bool {
        if self.is_oversize(request.size) {
            return block < request.size.saturating_add(self.max_non_split_rounding);
        }
        !self.is_oversize(block)
    }

    /// Whether the rest of a block becomes a block of its own. PyTorch: `should_split`.
    pub(super) fn splits(&self, request: &Request, block: u64) -> bool {
        let rest = block - request.size;
        match request.pool {
            PoolKind::Small => rest >= MIN_BLOCK,
            PoolKind::Large => !self.is_oversize(request.size) && rest > SMALL_SIZE,
        }
    }

    /// Whether blocks of this size are kept whole.
    pub(super) fn is_oversize(&self, size: u64) -> bool {
        size >= self.max_split_size
    }
}
