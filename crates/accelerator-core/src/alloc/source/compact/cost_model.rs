//! Arithmetic that decides how much memory to make at once, and what making less is worth.
//!
//! The measure of everything is the peak: the most bytes ever requested at once. Reserved memory beyond it is the price
//! of fragmentation, and what a driver call saves is measured as a share of it.

use std::sync::OnceLock;

use crate::types::{MIB, PoolKind};

// The constants below were tuned together, on the reserved memory and the driver calls of recorded jobs. BENCHMARKS
// has the curve for the chunk lengths, which `cargo bench --bench compact_curve` prints.

/// Requests of this size or more get no more than they need.
const LARGE: u64 = 24 * MIB;
/// A large request gets a separate last chunk only if it is longer than this many of the shortest chunks.
const SHORT: u64 = 3;
/// The minimum total size of large chunks made at once.
const CHUNK: u64 = 20 * MIB;

/// Up to this share over the peak, or [`SLACK`] if that is more, a miss simply makes memory.
const LITTLE: Fraction = (1, 100);
/// Beyond this share over the peak, or [`SLACK`] if that is more, memory is expensive: saving it is worth more driver
/// calls.
const MUCH: Fraction = (1, 50);
/// This much over the peak is never a reason to save memory.
const SLACK: u64 = 16 * MIB;
/// Beyond this share over the peak, or [`SLACK`] if that is more, memory is saved at nearly any price in calls.
const TOO_MUCH: Fraction = (7, 250);
/// A stream waits for others on the device if that saves more than this share of the peak.
const WORTH_WAITING: Fraction = (7, 5000);

/// How much a driver call must save, as a share of the peak, while memory is not expensive and the peak is rising. This
/// is the highest price, because new memory will be needed soon anyway.
const PRICE_RISING: f64 = 0.007;
/// The same while memory is expensive and the peak is rising, or while neither is the case.
const PRICE: f64 = 0.00175;
/// The same while memory is expensive and the peak is not rising.
const PRICE_DEAR: f64 = 0.000875;
/// The same beyond [`TOO_MUCH`], whatever the peak does and however many aliases there were.
const PRICE_AT_MOST: f64 = 0.0001;
/// The peak counts as rising while at least this share of it is requested.
const RISING: f64 = 0.98;
/// The price rises with the fourth power of a ratio: the aliases mapped so far, divided by this many for each growth
/// plus [`ALIASES_AT_FIRST`]. A job that never repeats itself has no use for old aliases.
const ALIASES_PER_GROWTH: f64 = 1.2;
/// The first aliases, up to about this many, hardly raise the price.
const ALIASES_AT_FIRST: f64 = 32.0;

/// An owner's chunks in the small pool grow by this share of their size, and at least by [`SMALL_CHUNK`].
const SMALL_GROWTH: Fraction = (1, 5);
/// The minimum length of a chunk in the small pool, which is PyTorch's segment there.
const SMALL_CHUNK: u64 = 2 * MIB;
/// The large pool grows by this share of the reserved memory.
const GROWTH: Fraction = (3, 100);
/// It grows by less if it would otherwise exceed the peak by more than this.
const GROWTH_LIMIT: Fraction = (1, 40);
/// While memory is not expensive, it grows by at least this share of the reserved memory.
const LEAST_GROWTH: Fraction = (1, 100);
/// While memory is expensive, it grows by at least this share, and at least by [`LEAST_DEAR_CHUNK`].
const LEAST_DEAR_GROWTH: Fraction = (3, 1000);
/// The minimum total length of the chunks made at once while memory is expensive.
const LEAST_DEAR_CHUNK: u64 = 4 * MIB;

/// Without virtual memory, a segment has this share of the reserved memory. This is more than [`GROWTH`], because
/// segments cannot be combined.
const SEGMENT_GROWTH: Fraction = (3, 50);
/// A segment is shorter if it would otherwise exceed the peak by more than this.
const SEGMENT_LIMIT: Fraction = (2, 25);
/// The limit never makes a segment shorter than this share of the reserved memory.
const LEAST_SEGMENT_GROWTH: Fraction = (1, 100);
/// Nor does it make a segment shorter than this.
const LEAST_SEGMENT: u64 = 16 * MIB;
/// Idle segments go back if the reserved memory would otherwise exceed the peak by more than this.
const EXCESS: Fraction = (1, 20);
/// Each idle segment that goes back must save this share of the peak while the peak is rising.
const SEGMENT_PRICE_RISING: f64 = 0.005;
/// The same while the peak is not rising.
const SEGMENT_PRICE: f64 = 0.002;

/// While room is tight, a request above this size has a segment of its own, which is free again when the request is.
/// Smaller requests share segments.
pub(super) const SEPARATE_FROM: u64 = MIB;
/// The size of such a segment has so many steps in each power of two, so that similar requests can use it.
const SEPARATE_ROUNDING: u64 = 128;
/// Such a request also gets a free block of which it leaves over at most this share of its size.
const LEFT_OVER: Fraction = (1, 32);
/// Or one of which it leaves over at most this share of what the device has left.
const LEFT_OVER_OF_ROOM: Fraction = (1, 512);

/// How finely memory is divided into chunks. `cargo bench --bench compact_curve` varies these values.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLengths {
    /// The maximum chunk length, unless [`share`](Self::share) allows more. Longer chunks need fewer calls; shorter
    /// ones become completely free sooner.
    pub longest: u64,
    /// A fraction of the reserved memory, as numerator and denominator.
    pub share: (u64, u64),
    /// From this size on, the last bytes of a request get a separate chunk. Only that small chunk is shared with the
    /// next block, and the others are completely free as soon as the request is freed.
    pub joint_from: u64,
}

static CHUNK_LENGTHS: OnceLock<ChunkLengths> = OnceLock::new();

impl ChunkLengths {
    /// The coarsest division with which all those jobs reserve little memory.
    pub const CHOSEN: Self = Self { longest: CHUNK, share: (21, 2000), joint_from: LARGE };

    /// Sets the lengths for this process, unless it has already made chunks.
    pub fn set(self) {
        CHUNK_LENGTHS.get_or_init(|| self);
    }
}

/// A chunk has at most this share of what the device has left. Only whole chunks can be combined, so the shorter they
/// are, the more of the device can be used. While there is enough room, they need not be short.
const CHUNK_OF_ROOM: Fraction = (1, 2000);
/// The same of a segment for several requests, without virtual memory. Only whole segments go back.
const SEGMENT_OF_ROOM: Fraction = (1, 1000);

/// A fraction: numerator and denominator.
type Fraction = (u64, u64);

fn lengths() -> &'static ChunkLengths {
    CHUNK_LENGTHS.get_or_init(|| ChunkLengths::CHOSEN)
}

fn fraction(bytes: u64, (parts, of): Fraction) -> u64 {
    bytes / of * parts
}

/// How much effort to spend on saving memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// As much as pays off in the long run.
    LongRun,
    /// Make no more than the request needs.
    Exact,
    /// Make as little as possible, at any price in calls.
    Utmost,
}

/// The values that a decision depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CostModel {
    /// The total size of all chunks.
    pub(super) reserved: u64,
    /// The requested bytes of all blocks in use, for a decision including the request.
    pub(super) requested: u64,
    /// The highest value of `requested` so far.
    peak: u64,
    /// How many more bytes the device had left at the last miss.
    pub(super) room: u64,
    /// How often chunks were made.
    pub(super) growths: u64,
    /// How often an alias was mapped, or memory was given back in exchange for other memory.
    pub(super) rearranged: u64,
}

impl CostModel {
    /// Counts requested bytes that are now in use.
    #[inline(always)]
    pub(super) fn count(&mut self, more: u64) {
        self.requested += more;
        self.peak = self.peak.max(self.requested);
    }

    /// Returns the values with this many more requested bytes in use.
    pub(super) fn with(mut self, more: u64) -> Self {
        self.count(more);
        self
    }

    /// Returns whether this much more memory is little enough to be made without looking further.
    pub(super) fn is_little(&self, more: u64) -> bool {
        !self.exceeds(LITTLE, more)
    }

    /// Returns whether memory is expensive after it grows by this much.
    fn is_much(&self, more: u64) -> bool {
        self.exceeds(MUCH, more)
    }

    /// Returns whether memory exceeds the peak by more than a share of it after it grows by this much.
    fn exceeds(&self, share: Fraction, more: u64) -> bool {
        self.reserved + more > self.peak + fraction(self.peak, share).max(SLACK)
    }

    /// Returns whether this much more memory justifies waiting for other streams.
    pub(super) fn is_worth_waiting(&self, more: u64, effort: Effort) -> bool {
        more > 0 && (effort != Effort::LongRun || self.is_much(more))
    }

    /// Returns how many bytes waiting for other streams must save.
    pub(super) fn least_saved_by_waiting(&self) -> u64 {
        fraction(self.peak, WORTH_WAITING)
    }

    /// Returns whether it is worth making this many additional driver calls to create `saved` bytes less than `grow`.
    pub(super) fn is_worth(&self, calls: i64, saved: i64, grow: u64) -> bool {
        saved >= 0 && (calls <= 0 || saved as f64 >= calls as f64 * self.price(grow))
    }

    /// Returns how many bytes a driver call must save if `grow` bytes would otherwise be created. The price is high
    /// while the peak is rising, because new memory will be needed soon anyway. The price also rises with the number of
    /// aliases per growth so far, because a job that never repeats itself has no use for old aliases.
    fn price(&self, grow: u64) -> f64 {
        if self.exceeds(TOO_MUCH, grow) {
            return PRICE_AT_MOST * self.peak as f64;
        }
        let share = match (self.is_much(grow), self.is_rising()) {
            (false, true) => PRICE_RISING,
            (false, false) | (true, true) => PRICE,
            (true, false) => PRICE_DEAR,
        };
        share * self.rarity() * self.peak as f64
    }

    fn is_rising(&self) -> bool {
        self.requested as f64 >= RISING * self.peak as f64
    }

    /// Returns the factor by which past aliases raise the price.
    fn rarity(&self) -> f64 {
        1.0 + (self.rearranged as f64 / (ALIASES_PER_GROWTH * self.growths as f64 + ALIASES_AT_FIRST)).powi(4)
    }

    /// Returns the total length of the chunks to make for a request that lacks `grow` bytes, if its owner has `owned`
    /// bytes in the pool.
    pub(super) fn length(&self, grow: u64, size: u64, pool: PoolKind, owned: u64, granularity: u64) -> u64 {
        let least = match self.is_much(0) {
            false => CHUNK.max(fraction(self.reserved, LEAST_GROWTH)),
            true => LEAST_DEAR_CHUNK.max(fraction(self.reserved, LEAST_DEAR_GROWTH)),
        };
        let wanted = match pool {
            PoolKind::Large if size >= LARGE => 0,
            _ => self.growth(pool, owned, GROWTH, GROWTH_LIMIT, least),
        };
        grow.max(wanted.next_multiple_of(granularity))
    }

    /// Returns the size of the segment to make without virtual memory, for an owner that has `owned` bytes in the pool.
    pub(super) fn segment(&self, pool: PoolKind, owned: u64) -> u64 {
        let least = LEAST_SEGMENT.max(fraction(self.reserved, LEAST_SEGMENT_GROWTH));
        self.growth(pool, owned, SEGMENT_GROWTH, SEGMENT_LIMIT, least)
    }

    /// Returns how much a pool grows by: for the large pool a share of the reserved memory, up to the limit.
    fn growth(&self, pool: PoolKind, owned: u64, growth: Fraction, limit: Fraction, least: u64) -> u64 {
        match pool {
            PoolKind::Small => SMALL_CHUNK.max(fraction(owned, SMALL_GROWTH)),
            PoolKind::Large => {
                let limit = (self.peak + fraction(self.peak, limit)).saturating_sub(self.reserved);
                CHUNK.max(fraction(self.reserved, growth)).min(limit.max(least))
            }
        }
    }

    /// Returns by how much `more` bytes would exceed the acceptable reserved memory; `None` if they would not.
    pub(super) fn excess(&self, pool: PoolKind, more: u64) -> Option<u64> {
        let excess = (self.reserved + more).saturating_sub(self.peak + fraction(self.peak, EXCESS));
        (pool == PoolKind::Large && excess > 0).then_some(excess)
    }

    /// Returns whether to give back this many segments, with this many bytes in total, before making `more`.
    pub(super) fn is_worth_giving_back(&self, segments: usize, bytes: u64, more: u64) -> bool {
        let saved = bytes.min((self.reserved + more).saturating_sub(self.peak));
        let share = if self.is_rising() { SEGMENT_PRICE_RISING } else { SEGMENT_PRICE };
        saved as f64 >= segments as f64 * share * self.rarity() * self.peak as f64
    }

    /// Returns how many calls count for mapping this many bytes. Short chunks are no reason to map less.
    pub(super) fn calls_to_map(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.longest())
    }

    /// Returns the maximum chunk length while the device has plenty of room.
    fn longest(&self) -> u64 {
        lengths().longest.max(fraction(self.reserved, lengths().share))
    }

    /// Returns whether the device has so little room left that chunks are shorter than usual.
    pub(super) fn has_short_chunks(&self) -> bool {
        fraction(self.room, CHUNK_OF_ROOM) < self.longest()
    }

    /// Returns whether, without virtual memory, the device has so little room left that segments are shorter than
    /// usual.
    pub(super) fn has_short_segments(&self) -> bool {
        fraction(self.room, SEGMENT_OF_ROOM) < self.segment(PoolKind::Large, 0)
    }

    /// Returns the size of the segment of its own for a request, while segments are shorter than usual.
    pub(super) fn separate_segment(&self, size: u64) -> u64 {
        let shared = self.segment(PoolKind::Large, 0).min(fraction(self.room, SEGMENT_OF_ROOM));
        let size = size.max(shared);
        size.next_multiple_of((1 << size.ilog2()) / SEPARATE_ROUNDING)
    }

    /// Returns whether a free block with `more` bytes than a request that has a segment of its own may serve it.
    pub(super) fn is_little_left_over(&self, size: u64, more: u64) -> bool {
        more <= fraction(size, LEFT_OVER).max(fraction(self.room, LEFT_OVER_OF_ROOM))
    }

    /// Returns the lengths of chunks for this many bytes in total.
    pub(super) fn chunks(&self, len: u64, size: u64, granularity: u64) -> Vec<u64> {
        let joint = if size >= lengths().joint_from && len > SHORT * granularity { granularity } else { 0 };
        let room = fraction(self.room, CHUNK_OF_ROOM);
        let longest = self.longest().min(room - room % granularity).max(granularity);
        let (mut rest, mut lens) = (len - joint, Vec::new());
        for parts in (1..=rest.div_ceil(longest)).rev() {
            let chunk = (rest / parts).next_multiple_of(granularity).min(rest);
            lens.push(chunk);
            rest -= chunk;
        }
        lens.extend((joint > 0).then_some(joint));
        lens
    }
}

#[cfg(test)]
mod tests;
