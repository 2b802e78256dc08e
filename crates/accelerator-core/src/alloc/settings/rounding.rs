//! PyTorch's size rules as plain arithmetic: rounding requests, choosing segment sizes, fitting and splitting blocks.

use super::config::AllocatorConfig;
use crate::types::{MIB, PoolKind};

/// Every block size is a multiple of this many bytes. PyTorch: `kMinBlockSize`.
pub(crate) const MIN_BLOCK: u64 = 512;
/// The largest rounded request in the small pool. PyTorch: `kSmallSize`.
pub(crate) const SMALL_SIZE: u64 = MIB;
/// The segment size of the small pool. PyTorch: `kSmallBuffer`.
pub(crate) const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests of this size or more get a segment of their own size, rounded up. PyTorch: `kMinLargeAlloc`.
const MIN_OWN_SEGMENT: u64 = 10 * MIB;
/// The sizes of such segments are multiples of this. PyTorch: `kRoundLarge`.
const SEGMENT_ROUNDING: u64 = 2 * MIB;
/// No device has this much memory, and no smaller size overflows. PyTorch: the check in
/// `NativeCachingAllocator::allocate`.
pub(crate) const TOO_LARGE: u64 = 1 << 60;

/// Returns this fraction of `bytes`, rounded as in PyTorch.
pub(crate) fn share(fraction: f64, bytes: u64) -> u64 {
    (fraction * bytes as f64) as u64
}

/// A rounded request, and the pool that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The number of bytes requested.
    pub(crate) requested: u64,
    /// The number of bytes that its block must have.
    pub(crate) size: u64,
    pub(crate) pool: PoolKind,
}

impl Request {
    /// A request for `requested` bytes, rounded up to `size`.
    #[inline(always)]
    fn new(requested: u64, size: u64) -> Self {
        Self { requested, size, pool: if size <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large } }
    }

    /// A request for fewer bytes than [`TOO_LARGE`], where the settings ask for no further rounding.
    #[inline(always)]
    pub(crate) fn in_blocks(requested: u64) -> Self {
        Self::new(requested, in_blocks(requested))
    }
}

/// Rounds fewer bytes than [`TOO_LARGE`] up to whole blocks.
#[inline(always)]
pub(crate) const fn in_blocks(bytes: u64) -> u64 {
    (bytes + (MIN_BLOCK - 1)) & !(MIN_BLOCK - 1) // in fewer instructions than `next_multiple_of`
}

/// How a block serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Whether the rest of the block becomes a separate block. PyTorch: `should_split`.
    pub(crate) splits: bool,
    /// Whether the block that the request gets counts as oversize.
    pub(crate) oversize: bool,
}

impl AllocatorConfig {
    /// Returns the rounded request for `requested` bytes, which must be fewer than [`TOO_LARGE`].
    pub(crate) fn request(&self, requested: u64) -> Request {
        Request::new(requested, self.round(requested))
    }

    /// Returns the number of bytes to request from the driver, which returns at most `largest` bytes at once.
    pub(crate) fn segment(&self, request: &Request, largest: u64) -> u64 {
        let Request { size, pool, .. } = *request;
        let segment = if !self.caching {
            size
        } else if pool == PoolKind::Small {
            SMALL_SEGMENT
        } else if size < MIN_OWN_SEGMENT {
            // Whatever the setting, a segment has room for its block, and its size is a multiple of the smallest block.
            self.large_segment_size.clamp(size, TOO_LARGE).next_multiple_of(MIN_BLOCK)
        } else {
            size.next_multiple_of(SEGMENT_ROUNDING)
        };
        let largest = largest - largest % MIN_BLOCK;
        if size <= largest { segment.min(largest) } else { segment } // otherwise no driver call can succeed
    }

    /// Returns the page size of an expandable segment.
    pub(crate) fn page(&self, pool: PoolKind) -> u64 {
        match pool {
            PoolKind::Small => SMALL_SEGMENT,
            PoolKind::Large => self.large_segment_size.clamp(MIN_BLOCK, TOO_LARGE),
        }
    }

    /// Returns the block size for a request of this many bytes, assuming that no larger block is used whole. Requests
    /// of 2⁶⁰ bytes or more, which no device has, count as 2⁶⁰. PyTorch: `round_size`.
    pub fn rounded(&self, requested: u64) -> u64 {
        self.round(requested.min(TOO_LARGE))
    }

    fn round(&self, requested: u64) -> u64 {
        let divisions = self.roundup_power2_divisions.of(requested);
        // If `divisions` blocks are more bytes than a u64 can hold, the product wraps to 0, as in PyTorch.
        if divisions > 1 && requested > MIN_BLOCK.wrapping_mul(divisions) && requested >= MIN_BLOCK {
            return match (1 << requested.ilog2()) / divisions {
                0 => requested.next_power_of_two(),
                step => requested.next_multiple_of(step),
            };
        }
        requested.max(1).next_multiple_of(MIN_BLOCK)
    }

    /// Returns how a free block, at least as large as the request, serves it; `None` if the block is too large.
    #[inline(always)]
    pub(crate) fn fit(&self, request: &Request, block: u64) -> Option<Fit> {
        if block < self.max_split_size {
            return Some(Fit { splits: self.leaves_block(request, block), oversize: false });
        }
        self.fit_in_oversize(request, block)
    }

    #[cold]
    fn fit_in_oversize(&self, request: &Request, block: u64) -> Option<Fit> {
        let fits = self.is_oversize(request.size) && block < request.size.saturating_add(self.max_non_split_rounding);
        fits.then(|| self.fit_of_block(request, block))
    }

    /// Returns how a new block of this size serves the request.
    pub(crate) fn fit_of_block(&self, request: &Request, block: u64) -> Fit {
        let splits = !self.is_kept_whole(request) && self.leaves_block(request, block);
        let size = if splits { request.size } else { block };
        Fit { splits, oversize: self.is_oversize(size) }
    }

    /// Returns how a block of this size serves any request for which it is not split.
    pub(crate) fn fit_whole(&self, block: u64) -> Fit {
        Fit { splits: false, oversize: self.is_oversize(block) }
    }

    /// Returns whether the rest of the block is large enough for a block of its own. PyTorch: `should_split`.
    #[inline(always)]
    fn leaves_block(&self, request: &Request, block: u64) -> bool {
        let rest = block - request.size;
        match request.pool {
            PoolKind::Large if !self.expandable_segments => rest > SMALL_SIZE,
            _ => rest >= MIN_BLOCK,
        }
    }

    /// Requests in the small pool are split from blocks of any size, and so are all requests in expandable segments.
    fn is_kept_whole(&self, request: &Request) -> bool {
        request.pool == PoolKind::Large && !self.expandable_segments && self.is_oversize(request.size)
    }

    /// Returns whether blocks of this size are never split.
    pub(crate) fn is_oversize(&self, size: u64) -> bool {
        size >= self.max_split_size
    }
}
