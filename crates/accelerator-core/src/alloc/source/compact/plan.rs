//! Decides what a miss does: make memory, or combine free memory. It changes nothing yet.

use std::ops::Range;

use super::Compact;
use super::cost_model::{CostModel, Effort};
use super::place::Target;
use super::ranges::UsableChunk;
use crate::alloc::blocks::Owner;
use crate::alloc::settings::Request;
use crate::types::PoolKind;

/// A request that found no place among its owner's free memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss<'a> {
    pub(super) request: &'a Request,
    pub(super) owner: Owner,
    pub(super) driver: Abilities,
    pub(super) effort: Effort,
}

/// The plan for a request.
#[derive(Debug)]
pub(super) enum Plan {
    /// Use this place; nothing needs to be made.
    Take(Target),
    /// Make chunks of these lengths.
    Grow(Vec<u64>),
    /// Map an alias.
    MapAlias(NewAlias),
    /// Give back these chunks, which are completely free, so that others can be made where they are useful.
    Exchange(Vec<u64>),
}

/// The abilities of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum Abilities {
    /// It has virtual memory.
    Chunks {
        /// Chunk lengths are multiples of this.
        granularity: u64,
        /// Whether the same memory can be mapped at several addresses.
        maps_twice: bool,
        /// Whether waiting is possible: not during capture, and only once for each request.
        waits: bool,
    },
    /// The driver allocates segments at places of its choice.
    Segments {
        /// The maximum segment size.
        largest: u64,
    },
}

impl Plan {
    /// Returns how many bytes the plan makes.
    fn made(&self) -> u64 {
        match self {
            Self::Take(_) | Self::Exchange(_) => 0,
            Self::Grow(lens) | Self::MapAlias(NewAlias { made: lens, .. }) => lens.iter().sum(),
        }
    }
}

/// An alias to be mapped.
#[derive(Debug)]
pub(super) struct NewAlias {
    /// The existing chunks mapped in it, in order, with the bytes of each that the request uses.
    pub(super) parts: Vec<Part>,
    /// The lengths of the chunks to make, which come after the first `behind` parts.
    pub(super) made: Vec<u64>,
    pub(super) behind: usize,
}

/// A part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) chunk: u64,
    pub(super) len: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Chunks by their usable bytes, shortest first.
struct Usable {
    /// Chunks of which all bytes are usable.
    complete: Vec<(u64, u64)>,
    /// Chunks whose first bytes are usable.
    heads: Vec<(u64, u64)>,
    /// The chunk with the most usable bytes at its end.
    tail: Option<(u64, u64)>,
}

/// Chunks for a request, which may not suffice.
struct Candidate {
    /// The number of bytes used at the end of the first chunk.
    tail: u64,
    chunks: Vec<u64>,
    /// Whether it ends in a part of a chunk because all completely free chunks together did not suffice.
    ends_in_head: bool,
    missing: u64,
    left_over: u64,
}

impl Compact {
    /// Plans for a request that found no place among its owner's free memory.
    pub(super) fn plan(&self, miss: Miss<'_>) -> Plan {
        let Miss { request, owner, .. } = miss;
        let usable = match self.target_anywhere(request, owner) {
            Ok(target) => return Plan::Take(target),
            Err(usable) => usable,
        };
        let costs = self.costs.with(request.requested);
        match miss.driver {
            Abilities::Chunks { granularity, maps_twice, waits } => {
                Planner { compact: self, miss, granularity, costs, usable: &usable }.plan(maps_twice, waits)
            }
            Abilities::Segments { largest } => self.plan_segments(miss, &costs, largest),
        }
    }

    /// Returns whether waiting on the device for all other owners would save enough new memory to be worth it.
    pub(super) fn is_worth_waiting(&mut self, plan: &Plan, miss: Miss<'_>) -> bool {
        let (made, costs) = (plan.made(), self.costs.with(miss.request.requested));
        let Abilities::Chunks { granularity, maps_twice, waits: true } = miss.driver else { return false };
        if !self.owners.are_several() || !costs.is_worth_waiting(made, miss.effort) {
            return false;
        }
        self.owners.assumed = Some(miss.owner);
        // Exchanging chunks would need a wait on the host.
        let driver = Abilities::Chunks { granularity, maps_twice, waits: false };
        let then = self.plan(Miss { driver, ..miss }).made();
        self.owners.assumed = None;
        made > then + if miss.effort == Effort::LongRun { costs.least_saved_by_waiting() } else { 0 }
    }

    /// Returns a place that needs no driver call, possibly with bytes of other owners.
    ///
    /// # Errors
    /// If there is none: the chunks of the large pool that the owner can use, for a request to that pool.
    pub(super) fn target_anywhere(&self, request: &Request, owner: Owner) -> Result<Target, Vec<UsableChunk>> {
        if let Some(target) = self.target_after_polling(request, owner) {
            return Ok(target);
        }
        let rows = if request.pool == PoolKind::Large { self.usable_rows(owner) } else { Vec::new() };
        let usable = self.usable_chunks(&rows);
        let position = self.shortest_row(request.size, &rows, &usable);
        position.map(Target::At).ok_or(usable)
    }

    /// Returns the place of the same request before, or the best fit, after polling.
    fn target_after_polling(&self, request: &Request, owner: Owner) -> Option<Target> {
        match request.pool {
            PoolKind::Small => self.best_fit(request, owner).map(|(free, offset)| Target::In(free, offset)),
            PoolKind::Large => {
                let precedent = self.owners[owner].log.precedent(request.size);
                self.target_for(request, owner, precedent, true)
            }
        }
    }

    /// Returns the position of the shortest row of usable bytes that is long enough, in a reserved range or an alias
    /// range. It may have bytes of several owners.
    fn shortest_row(&self, size: u64, rows: &[Range<u64>], usable: &[UsableChunk]) -> Option<u64> {
        let in_ranges = rows.iter().map(|row| (row.end - row.start, row.start)).filter(|(len, _)| *len >= size);
        let in_ranges = in_ranges.filter(|(len, position)| self.may_serve_at(*position, *len, size)).min();
        let rows = [in_ranges, self.row_in_aliases(size, usable)];
        rows.into_iter().flatten().min().map(|(_, position)| position)
    }
}

/// Plans with virtual memory.
struct Planner<'a> {
    compact: &'a Compact,
    miss: Miss<'a>,
    granularity: u64,
    costs: CostModel,
    usable: &'a [UsableChunk],
}

impl Planner<'_> {
    fn plan(&self, maps_twice: bool, waits: bool) -> Plan {
        let Miss { request: Request { size, pool, .. }, owner, effort, .. } = self.miss;
        let range = self.compact.range(owner, *pool);
        let tail = range.map_or(0, |range| self.compact.free_tail(range));
        let grow = (size - size.min(&tail)).next_multiple_of(self.granularity);
        let is_little = effort == Effort::LongRun && self.costs.is_little(grow);
        if *pool == PoolKind::Large && !is_little && effort != Effort::Exact {
            let instead = match maps_twice {
                true => self.new_alias(grow).map(Plan::MapAlias),
                false if waits => self.exchange(grow, range).map(Plan::Exchange),
                false => None,
            };
            if let Some(plan) = instead {
                return plan;
            }
        }
        let owned = range.map_or(0, |range| self.compact.ranges[range].owned);
        Plan::Grow(self.chunks_to_make(grow, owned, effort != Effort::LongRun))
    }

    /// Returns the lengths of the chunks to make for this many missing bytes, if the owner has `owned` bytes in the
    /// pool: exactly as many bytes, or as many more as pays off in the long run.
    fn chunks_to_make(&self, missing: u64, owned: u64, is_exact: bool) -> Vec<u64> {
        let Request { size, pool, .. } = *self.miss.request;
        let longer = || self.costs.length(missing, size, pool, owned, self.granularity);
        self.costs.chunks(if is_exact { missing } else { longer() }, size, self.granularity)
    }

    /// Chooses idle chunks to give back in exchange for `grow` more bytes at the end of a range, if that is worth it.
    fn exchange(&self, grow: u64, range: Option<usize>) -> Option<Vec<u64>> {
        let (compact, Miss { effort, .. }) = (self.compact, self.miss);
        let tail = range.map_or(0..0, |range| compact.end_of(range) - compact.free_tail(range)..compact.end_of(range));
        let idle = self.usable.iter().filter(|chunk| chunk.is_complete() && !tail.contains(&chunk.start));
        let mut idle: Vec<_> = idle.map(|chunk| (chunk.len, chunk.start)).collect();
        idle.sort_unstable();
        let (chosen, bytes) = fewest(idle, grow);
        let calls = 2 * self.costs.calls_to_map(bytes) as i64;
        let is_worth = effort == Effort::Utmost || self.costs.is_worth(calls, bytes.min(grow) as i64, grow);
        (is_worth && !chosen.is_empty()).then_some(chosen)
    }

    /// Returns the best alias for the request, if it is worth it.
    fn new_alias(&self, grow: u64) -> Option<NewAlias> {
        let usable = Usable::new(self.usable);
        let size = self.miss.request.size;
        let made = |candidate: &Candidate| candidate.missing.next_multiple_of(self.granularity);
        let with_tail = usable.tail.map(|tail| usable.candidate(size, Some(tail)));
        let candidates = std::iter::once(usable.candidate(size, None)).chain(with_tail);
        let best = candidates.min_by_key(|one| (made(one), one.chunks.len(), one.left_over))?;
        let saved = grow as i64 - made(&best) as i64;
        // Compared with a growth: making a chunk takes two calls, and mapping it in the alias range a third.
        let calls = self.costs.calls_to_map(size) as i64 + if best.missing > 0 { 3 } else { 0 } - 2;
        let is_worth = match self.miss.effort {
            Effort::LongRun => self.costs.is_worth(calls, saved, grow),
            Effort::Exact | Effort::Utmost => saved > 0,
        };
        (is_worth && !best.chunks.is_empty()).then(|| self.laid_out(best))
    }

    /// Lays out the alias for a candidate.
    fn laid_out(&self, candidate: Candidate) -> NewAlias {
        let Miss { request: Request { size, pool, .. }, effort, .. } = self.miss;
        let Candidate { tail, chunks, ends_in_head, missing, .. } = candidate;
        let missing = missing.next_multiple_of(self.granularity);
        // If the last part begins at the start of its chunk, the new chunks must be exactly as long as needed.
        let made = self.chunks_to_make(missing, 0, missing == 0 || ends_in_head || effort != Effort::LongRun);
        let mut rest = *size;
        let mut parts = Vec::with_capacity(chunks.len());
        let count = chunks.len();
        for (number, chunk) in chunks.into_iter().enumerate() {
            let len = self.compact.chunks[*pool as usize][&chunk];
            if ends_in_head && number + 1 == count {
                rest = rest.saturating_sub(missing);
            }
            let from = if number == 0 && tail > 0 { len - tail } else { 0 };
            let to = len.min(from + rest);
            rest -= to - from;
            if from < to {
                parts.push(Part { chunk, len, from, to });
            }
        }
        let behind = if ends_in_head && parts.len() == count { count - 1 } else { parts.len() };
        NewAlias { parts, made, behind }
    }
}

/// Chooses from idle memory, sorted by length, the fewest pieces with this many bytes together: the longest ones, and
/// last the shortest one that suffices. All of it may still be too little. Returns the pieces and their total length.
pub(super) fn fewest<T: Copy>(mut idle: Vec<(u64, T)>, wanted: u64) -> (Vec<T>, u64) {
    let (mut chosen, mut bytes) = (Vec::new(), 0);
    while bytes < wanted {
        let enough = idle.partition_point(|(len, _)| *len < wanted - bytes);
        let Some((len, piece)) = idle.get(enough).copied().or_else(|| idle.pop()) else { break };
        chosen.push(piece);
        bytes += len;
    }
    (chosen, bytes)
}

impl Usable {
    fn new(chunks: &[UsableChunk]) -> Self {
        let (complete, partial): (Vec<&UsableChunk>, Vec<&UsableChunk>) =
            chunks.iter().partition(|chunk| chunk.is_complete());
        let sorted = |mut chunks: Vec<(u64, u64)>| {
            chunks.sort_unstable();
            chunks
        };
        let heads = partial.iter().filter(|chunk| chunk.lead > 0).map(|chunk| (chunk.lead, chunk.start));
        let tails = partial.iter().filter(|chunk| chunk.trail > 0).map(|chunk| (chunk.trail, chunk.start));
        Self {
            complete: sorted(complete.iter().map(|chunk| (chunk.len, chunk.start)).collect()),
            heads: sorted(heads.collect()),
            tail: tails.max(),
        }
    }

    /// Chooses chunks for this many bytes, after the tail if given: the longest ones, and last the shortest one that
    /// suffices.
    fn candidate(&self, size: u64, tail: Option<(u64, u64)>) -> Candidate {
        let mut complete = self.complete.clone();
        let mut chunks: Vec<u64> = tail.map(|(_, chunk)| chunk).into_iter().collect();
        let tail = tail.map_or(0, |(tail, _)| tail);
        let mut missing = size.saturating_sub(tail);
        let (mut ends_in_head, mut left_over) = (false, tail.saturating_sub(size));
        while missing > 0 {
            let enough = |chunks: &[(u64, u64)]| chunks.get(chunks.partition_point(|(len, _)| *len < missing)).copied();
            if let Some((len, chunk)) = [enough(&complete), enough(&self.heads)].into_iter().flatten().min() {
                chunks.push(chunk);
                left_over = len - missing;
                missing = 0;
            } else if let Some((len, chunk)) = complete.pop() {
                chunks.push(chunk);
                missing -= len;
            } else {
                if let Some((len, chunk)) = self.heads.last() {
                    chunks.push(*chunk);
                    missing -= len;
                    ends_in_head = true;
                }
                break;
            }
        }
        Candidate { tail, chunks, ends_in_head, missing, left_over }
    }
}

#[cfg(test)]
mod tests;
