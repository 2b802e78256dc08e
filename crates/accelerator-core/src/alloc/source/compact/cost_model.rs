//! How much memory is made at once, and what it is worth to make less: arithmetic.
//!
//! The measure of all is the peak: the most bytes that were ever asked for at once. What is reserved beyond it is the price of
//! fragmentation, and what driver calls may save of that is weighed as a share of it.

use std::sync::OnceLock;

use super::plan::Effort;
use crate::types::{MIB, PoolKind};

// The numbers below were chosen together, by what 24 recorded jobs reserve and what calls that takes: BENCHMARKS has the curve.

/// From this size on a request gets no more than it needs.
const LARGE: u64 = 24 * MIB;
/// A large request has a chunk of its own at its end only where it is longer than so many of the shortest chunks.
const SHORT: u64 = 3;
/// Large chunks are made of so many bytes together, at least.
const CHUNK: u64 = 20 * MIB;

/// Up to so much over the peak, and [`SLACK`], a miss makes memory and looks no further.
const LITTLE: Part = (1, 100);
/// From so much over the peak, and [`SLACK`], on memory is dear: driver calls are worth more to save it.
const MUCH: Part = (1, 50);
const SLACK: u64 = 16 * MIB;
/// A stream waits for others on the device where that saves more than so much of the peak.
const WORTH_WAITING: Part = (1, 400);

/// What a driver call must save, as a share of the peak. It is most while memory is not dear and the peak is rising, since what is
/// made then is needed soon anyway.
const PRICE_RISING: f64 = 0.004;
/// The same while memory is dear and the peak is rising, or neither.
const PRICE: f64 = 0.001;
/// The same while memory is dear and the peak is not rising.
const PRICE_DEAR: f64 = 0.0005;
/// The peak is rising while so much of it is asked for.
const RISING: f64 = 0.98;
/// The price rises with the fourth power of the aliases mapped, over so many for each growth and so many more: a job that never does
/// the same again finds no use for old ones.
const ALIASES_PER_GROWTH: f64 = 0.6;
const ALIASES_AT_FIRST: f64 = 16.0;

/// An owner's chunks of the small pool grow by so much of what it has there, and at least [`SMALL_CHUNK`].
const SMALL_GROWTH: Part = (1, 5);
const SMALL_CHUNK: u64 = 2 * MIB;
/// The large pool grows by so much of what is reserved.
const GROWTH: Part = (3, 100);
/// It grows by less where that would bring it over the peak by more than this.
const GROWTH_LIMIT: Part = (1, 40);
/// While memory is not dear it grows by at least so much of what is reserved.
const LEAST_GROWTH: Part = (1, 100);
/// While memory is dear it grows by at least so much, and at least by [`LEAST_DEAR_CHUNK`].
const LEAST_DEAR_GROWTH: Part = (3, 1000);
const LEAST_DEAR_CHUNK: u64 = 4 * MIB;

/// The same for segments, which nothing can be put together of, so they are longer.
const SEGMENT_GROWTH: Part = (3, 50);
const SEGMENT_LIMIT: Part = (2, 25);
const LEAST_SEGMENT_GROWTH: Part = (1, 100);
const LEAST_SEGMENT: u64 = 16 * MIB;
/// Idle segments go back where more than so much over the peak would be reserved.
const EXCESS: Part = (1, 20);
/// Each of them must save so much of the peak while that is rising.
const SEGMENT_PRICE_RISING: f64 = 0.005;
/// The same while it is not.
const SEGMENT_PRICE: f64 = 0.002;

/// How finely memory is cut into chunks: what `cargo bench --bench compact_curve` varies.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLengths {
    /// The longest chunk has so many bytes, or more where [`share`](Self::share) says so: long ones save calls, short ones are
    /// whole sooner.
    pub longest: u64,
    /// So many parts of so many of what is reserved.
    pub share: (u64, u64),
    /// From this size on a request's last bytes have a chunk of their own: what it shares with the block behind it is then small,
    /// and the others are whole again as soon as it is freed.
    pub joint_from: u64,
}

static CHUNK_LENGTHS: OnceLock<ChunkLengths> = OnceLock::new();

impl ChunkLengths {
    /// The coarsest with which all those jobs reserve little.
    pub const CHOSEN: Self = Self { longest: CHUNK, share: (3, 200), joint_from: LARGE };

    /// Has this process cut so, unless it has cut some already.
    pub fn set(self) {
        CHUNK_LENGTHS.get_or_init(|| self);
    }
}

/// So many parts of so many.
type Part = (u64, u64);

fn part(bytes: u64, (parts, of): Part) -> u64 {
    bytes / of * parts
}

/// What a decision looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostModel {
    /// Bytes of all chunks.
    pub(super) reserved: u64,
    /// Bytes that are asked for, with those of the request.
    pub(super) requested: u64,
    /// The most that there ever were of those.
    pub(super) peak: u64,
    /// How often chunks were made.
    pub(super) growths: u64,
    /// How often an alias was made, or memory was given back for other.
    pub(super) rearranged: u64,
}

impl CostModel {
    /// Whether so much more memory is little enough not to look further.
    pub(super) fn is_little(&self, more: u64) -> bool {
        self.reserved + more <= self.peak + part(self.peak, LITTLE).max(SLACK)
    }

    /// Whether so much more memory is too much to be taken for a small price.
    fn is_much(&self, more: u64) -> bool {
        self.reserved + more > self.peak + part(self.peak, MUCH).max(SLACK)
    }

    /// Whether `more` memory is so much that another stream's may be waited for.
    pub(super) fn is_worth_waiting(&self, more: u64, effort: Effort) -> bool {
        more > 0 && (effort != Effort::LongRun || self.is_much(more))
    }

    /// What waiting for another stream must save, in bytes.
    pub(super) fn least_saved_by_waiting(&self) -> u64 {
        part(self.peak, WORTH_WAITING)
    }

    /// Whether it is worth so many more driver calls to make `saved` bytes less than `grow`.
    pub(super) fn is_worth(&self, calls: i64, saved: i64, grow: u64) -> bool {
        saved >= 0 && (calls <= 0 || saved as f64 >= calls as f64 * self.price(grow))
    }

    /// Bytes that a driver call must save where `grow` would be made. While the peak is rising it is high, since what is made is
    /// needed anyway soon; and it rises with the share of aliases among what was done, since a job that never does the same again
    /// finds no use for the old ones.
    fn price(&self, grow: u64) -> f64 {
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

    /// How many times as much a call must save, after what was done so far.
    fn rarity(&self) -> f64 {
        1.0 + (self.rearranged as f64 / (ALIASES_PER_GROWTH * self.growths as f64 + ALIASES_AT_FIRST)).powi(4)
    }

    /// Bytes of the chunks to make for a request that lacks `grow` bytes, where its owner has `owned` in the pool.
    pub(super) fn length(&self, grow: u64, size: u64, pool: PoolKind, owned: u64, granularity: u64) -> u64 {
        let least = match self.is_much(0) {
            false => CHUNK.max(part(self.reserved, LEAST_GROWTH)),
            true => LEAST_DEAR_CHUNK.max(part(self.reserved, LEAST_DEAR_GROWTH)),
        };
        let wanted = match pool {
            PoolKind::Large if size >= LARGE => 0,
            _ => self.growth(pool, owned, GROWTH, GROWTH_LIMIT, least),
        };
        grow.max(wanted.next_multiple_of(granularity))
    }

    /// Bytes of the segment to make where nothing can be put together, for an owner that has `owned` in the pool.
    pub(super) fn segment(&self, pool: PoolKind, owned: u64) -> u64 {
        let least = LEAST_SEGMENT.max(part(self.reserved, LEAST_SEGMENT_GROWTH));
        self.growth(pool, owned, SEGMENT_GROWTH, SEGMENT_LIMIT, least)
    }

    /// Bytes that a pool grows by: the large one by a share of what is reserved, unless that is over the limit.
    fn growth(&self, pool: PoolKind, owned: u64, growth: Part, limit: Part, least: u64) -> u64 {
        match pool {
            PoolKind::Small => SMALL_CHUNK.max(part(owned, SMALL_GROWTH)),
            PoolKind::Large => {
                let limit = (self.peak + part(self.peak, limit)).saturating_sub(self.reserved);
                CHUNK.max(part(self.reserved, growth)).min(limit.max(least))
            }
        }
    }

    /// By how much more memory would be reserved than is little, with so much more; `None`: by nothing.
    pub(super) fn excess(&self, pool: PoolKind, more: u64) -> Option<u64> {
        let excess = (self.reserved + more).saturating_sub(self.peak + part(self.peak, EXCESS));
        (pool == PoolKind::Large && excess > 0).then_some(excess)
    }

    /// Whether to give so many segments back, of so many bytes, ahead of making `more`.
    pub(super) fn is_worth_giving_back(&self, segments: usize, bytes: u64, more: u64) -> bool {
        let saved = bytes.min((self.reserved + more).saturating_sub(self.peak));
        let share = if self.is_rising() { SEGMENT_PRICE_RISING } else { SEGMENT_PRICE };
        segments > 0 && saved as f64 >= segments as f64 * share * self.rarity() * self.peak as f64
    }

    /// Lengths of the chunks that have so many bytes together.
    pub(super) fn chunks(&self, len: u64, size: u64, granularity: u64) -> Vec<u64> {
        let lengths = CHUNK_LENGTHS.get_or_init(|| ChunkLengths::CHOSEN);
        let joint = if size >= lengths.joint_from && len > SHORT * granularity { granularity } else { 0 };
        let longest = lengths.longest.max(part(self.reserved, lengths.share)).max(granularity);
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
mod tests {
    use super::*;

    const COSTS: CostModel = CostModel { reserved: 0, requested: 0, peak: 0, growths: 0, rearranged: 0 };
    const PAGE: u64 = 2 * MIB;

    #[test]
    fn chunks_are_all_of_the_length_and_none_is_long() {
        for reserved in [0, 1 << 30, 50 << 30] {
            let costs = CostModel { reserved, ..COSTS };
            for pages in (1..2000).step_by(7) {
                for size in [1, LARGE - 1, LARGE, 4096 * MIB] {
                    let chunks = costs.chunks(pages * PAGE, size, PAGE);
                    assert_eq!(chunks.iter().sum::<u64>(), pages * PAGE);
                    assert!(chunks.iter().all(|len| *len > 0 && len.is_multiple_of(PAGE)), "{chunks:?}");
                    let longest = (20 * MIB).max(reserved / 200 * 3) + PAGE;
                    assert!(chunks.iter().all(|len| *len <= longest), "{chunks:?}");
                    if size >= LARGE && pages > 3 {
                        assert_eq!(chunks.last(), Some(&PAGE));
                    }
                }
            }
        }
    }

    #[test]
    fn a_call_is_worth_more_where_much_is_reserved_and_less_while_the_peak_rises() {
        let peak = 1000 * MIB;
        let at = |reserved, requested| CostModel { reserved, requested, peak, ..COSTS };
        let least_worth = |costs: CostModel| {
            (0..).find(|tenths| costs.is_worth(1, (tenths * peak / 10_000) as i64, 40 * MIB)).unwrap()
        };
        let (little, much) = (970 * MIB, 1000 * MIB);
        assert_eq!(least_worth(at(little, peak / 2)), 10);
        assert_eq!(least_worth(at(little, peak)), 40);
        assert_eq!(least_worth(at(much, peak / 2)), 5);
        assert_eq!(least_worth(at(much, peak)), 10);
        assert!(at(little, peak).is_worth(0, 0, 40 * MIB));
        assert!(!at(little, peak).is_worth(-1, -1, 40 * MIB));
        let many = CostModel { rearranged: 160, growths: 0, ..at(little, peak / 2) };
        assert!(least_worth(many) > 10_000);
    }

    #[test]
    fn memory_grows_by_a_share_of_what_there_is_and_not_far_beyond_the_peak() {
        let length = |reserved, peak, size| {
            let costs = CostModel { reserved, peak, ..COSTS };
            costs.length(PAGE, size, PoolKind::Large, 0, PAGE)
        };
        assert_eq!(length(0, MIB, MIB), 20 * MIB);
        assert_eq!(length(2000 * MIB, 10_000 * MIB, MIB), 60 * MIB);
        assert_eq!(length(2000 * MIB, 2000 * MIB, MIB), 50 * MIB);
        assert_eq!(length(2000 * MIB, 1970 * MIB, MIB), 20 * MIB);
        assert_eq!(length(2000 * MIB, 1900 * MIB, MIB), 6 * MIB);
        assert_eq!(length(2000 * MIB, 2000 * MIB, LARGE), PAGE);
        let small = |owned| COSTS.length(PAGE, 512, PoolKind::Small, owned, PAGE);
        assert_eq!([0, 20 * MIB].map(small), [2 * MIB, 4 * MIB]);
    }
}
