//! Several arenas locked at once, to sum over all streams and to distribute headroom.

use super::{Arenas, Setup};
use crate::alloc::arena::{Arena, ArenaId};
use crate::alloc::settings::AllocatorConfig;
use crate::alloc::stats::{DeviceStatistics, PoolAmounts, StreamCounters};
use crate::sync::{Guard, OwnedLock};
use crate::types::Statistics;

/// Locked arenas and statistics. While they are held, nothing in them changes, no arena is created, and none becomes
/// active or idle.
pub(crate) struct Held<'a> {
    pub(super) setup: Guard<'a, Setup>,
    /// The first arena, if there is one. Most programs have no other, and a single one needs no heap memory.
    pub(super) first: First<'a>,
    pub(super) others: Vec<Guard<'a, Arena>>,
    pub(crate) statistics: Guard<'a, DeviceStatistics>,
}

type First<'a> = Option<Guard<'a, Arena>>;

impl Arenas {
    /// Returns all statistics counted so far.
    pub(crate) fn sum(&self) -> Statistics {
        let mut held = self.hold_active(None);
        held.sum();
        held.statistics.totals
    }

    /// Sets every peak to the current value. Counters that have changed still count as changed, so the next reading
    /// sums them up with the new peaks.
    pub(crate) fn reset_peak(&self) {
        let Held { first, others, statistics, .. } = &mut self.hold_active(None);
        statistics.reset_peak();
        for arena in first.iter_mut().chain(others) {
            arena.counters_mut().set_headroom(PoolAmounts::default());
        }
    }

    pub(crate) fn reset_accumulated(&self) {
        let Held { first, others, statistics, .. } = &mut self.hold_active(None);
        statistics.reset_accumulated(counters(first, others));
    }

    /// Locks all arenas.
    pub(crate) fn hold_all(&self) -> Held<'_> {
        let setup = self.setup.lock_soon();
        let (first, others) = hold(None, self.all());
        Held { setup, first, others, statistics: self.statistics() }
    }

    /// Locks all active arenas. If `first` is given, locks that arena first, even if it is idle.
    pub(super) fn hold_active(&self, first: Option<ArenaId>) -> Held<'_> {
        let setup = self.setup.lock_soon();
        let others = setup.active.iter().filter(|active| Some(**active) != first);
        let first = first.map(|arena| self.of(arena).lock_soon());
        let (first, others) = hold(first, others.map(|arena| self.of(*arena)));
        Held { setup, first, others, statistics: self.statistics() }
    }
}

/// Locks arenas. No thread waits for the setup while it holds an arena, and only a thread that holds the setup holds
/// several arenas. So they need no lock order among themselves.
#[inline(always)]
fn hold<'a>(
    mut first: First<'a>,
    arenas: impl Iterator<Item = &'a OwnedLock<Arena>>,
) -> (First<'a>, Vec<Guard<'a, Arena>>) {
    let mut others = Vec::new();
    for arena in arenas {
        let arena = arena.lock_soon();
        match first {
            None => first = Some(arena),
            Some(_) => others.push(arena),
        }
    }
    (first, others)
}

impl Held<'_> {
    /// Updates the statistics.
    fn sum(&mut self) {
        let Self { first, others, statistics, .. } = self;
        // Only active counters are checked: settling that makes counters idle moves their `has_changed` to the settling
        // counters.
        let changed = |arena: &mut Guard<'_, Arena>| std::mem::take(&mut arena.counters_mut().has_changed);
        let mut has_changed = first.as_mut().is_some_and(changed);
        others.iter_mut().for_each(|other| has_changed |= changed(other));
        if has_changed {
            statistics.sum(counters(first, others));
        }
    }

    pub(crate) fn arenas(&self) -> impl Iterator<Item = &Arena> + Clone {
        self.first.iter().chain(&self.others).map(|arena| &**arena)
    }

    pub(crate) fn config(&self) -> AllocatorConfig {
        self.setup.config
    }
}

fn counters<'a>(
    first: &'a First<'_>,
    others: &'a [Guard<'_, Arena>],
) -> impl Iterator<Item = &'a StreamCounters> + Clone {
    first.iter().chain(others).map(|arena| arena.counters())
}
