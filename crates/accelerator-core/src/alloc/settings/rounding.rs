//! PyTorch's policy as plain arithmetic: how large a request becomes, what it may take, what is cut.

use super::config::{AllocatorConfig, Policy};
use crate::types::{MIB, PoolKind};

/// Every block is a multiple of this many bytes. PyTorch: `kMinBlockSize`.
pub(crate) const MIN_BLOCK: u64 = 512;
/// The largest request, rounded, of the small pool. PyTorch: `kSmallSize`.
const SMALL_SIZE: u64 = MIB;
/// A segment of the small pool. PyTorch: `kSmallBuffer`.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// From here a request gets a segment of its own size, rounded up. PyTorch: `kMinLargeAlloc`.
const MIN_OWN_SEGMENT: u64 = 10 * MIB;
/// Such segments are multiples of this. PyTorch: `kRoundLarge`.
const SEGMENT_ROUNDING: u64 = 2 * MIB;
/// No device has this much; below it no size overflows. PyTorch: the check in `NativeCachingAllocator::allocate`.
pub(crate) const TOO_LARGE: u64 = 1 << 60;

/// This share of so many bytes, rounded as PyTorch rounds it.
pub(crate) fn share(fraction: f64, bytes: u64) -> u64 {
    (fraction * bytes as f64) as u64
}

/// A request, rounded, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes asked for.
    pub(crate) requested: u64,
    /// Bytes that its block must have.
    pub(crate) size: u64,
    pub(crate) pool: PoolKind,
}

impl Request {
    /// A request for `requested` bytes, which become `size`.
    #[inline(always)]
    fn new(requested: u64, size: u64) -> Self {
        Self { requested, size, pool: if size <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large } }
    }

    /// One for fewer bytes than [`TOO_LARGE`], where no settings round it up further.
    #[inline(always)]
    pub(crate) fn in_blocks(requested: u64) -> Self {
        Self::new(requested, requested.next_multiple_of(MIN_BLOCK))
    }
}

/// How a request has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Whether the rest of the block becomes a block of its own. PyTorch: `should_split`.
    pub(crate) splits: bool,
    /// Whether what the request gets counts as kept whole.
    pub(crate) oversize: bool,
}

impl AllocatorConfig {
    /// What becomes of a request for `requested` bytes, which are fewer than [`TOO_LARGE`].
    pub(crate) fn request(&self, requested: u64) -> Request {
        Request::new(requested, self.round(requested))
    }

    /// Bytes to take from the driver for a request, where that gives no more than `largest` at once.
    pub(crate) fn segment(&self, request: &Request, largest: u64) -> u64 {
        let Request { size, pool, .. } = *request;
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
        let largest = largest - largest % MIN_BLOCK;
        if size <= largest { segment.min(largest) } else { segment } // else no driver call will do
    }

    /// Bytes of a page of an expandable segment.
    pub(crate) fn page(&self, pool: PoolKind) -> u64 {
        match pool {
            PoolKind::Small => SMALL_SEGMENT,
            PoolKind::Large => self.large_segment_size.clamp(MIN_BLOCK, TOO_LARGE),
        }
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

    /// How the request may have a free block of at least its size; `None`: that is too large for it.
    #[inline(always)]
    pub(crate) fn fit(&self, request: &Request, block: u64) -> Option<Fit> {
        if block < self.max_split_size {
            return Some(Fit { splits: self.leaves_block(request, block), oversize: false });
        }
        self.fit_in_oversize(request, block)
    }

    #[cold]
    fn fit_in_oversize(&self, request: &Request, block: u64) -> Option<Fit> {
        let fits = self.is_oversize(request.size)
            && block < request.size.saturating_add(self.max_non_split_rounding);
        fits.then(|| self.fit_of_block(request, block))
    }

    /// How the request has a new block of this size.
    pub(crate) fn fit_of_block(&self, request: &Request, block: u64) -> Fit {
        let splits = !self.is_kept_whole(request) && self.leaves_block(request, block);
        let size = if splits { request.size } else { block };
        Fit { splits, oversize: self.is_oversize(size) }
    }

    /// Whether enough of a block is left for another. PyTorch: `should_split`.
    #[inline(always)]
    fn leaves_block(&self, request: &Request, block: u64) -> bool {
        let rest = block - request.size;
        match request.pool {
            PoolKind::Large if !self.expandable_segments => rest > SMALL_SIZE,
            _ => rest >= MIN_BLOCK,
        }
    }

    /// Requests of the small pool are cut out of any block, and where segments are expandable all are.
    fn is_kept_whole(&self, request: &Request) -> bool {
        request.pool == PoolKind::Large && !self.expandable_segments && self.is_oversize(request.size)
    }

    /// Whether best fit chooses blocks, in segments that keep their size.
    pub(crate) fn is_plain(&self) -> bool {
        self.policy == Policy::Pytorch && !self.expandable_segments
    }

    /// Whether blocks of this size are kept whole.
    pub(crate) fn is_oversize(&self, size: u64) -> bool {
        size >= self.max_split_size
    }
}
