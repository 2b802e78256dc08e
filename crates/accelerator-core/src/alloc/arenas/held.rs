//! Several arenas at once: sums over all streams, and headroom dealt out among them.

use super::{Arenas, Setup};
use crate::alloc::arena::Arena;
use crate::alloc::settings::AllocatorConfig;
use crate::alloc::stats::{DeviceStatistics, PoolAmounts, StreamCounters};
use crate::sync::{Guard, OwnedLock};
use crate::types::{Statistics, StreamId};

/// Arenas and the statistics, held: nothing changes in them meanwhile, no arena is made, and no stream becomes active or idle.
pub(crate) struct Held<'a> {
    pub(super) setup: Guard<'a, Setup>,
    /// One of them; `None`: there is none. Most programs have no other, so it needs no memory.
    pub(super) first: First<'a>,
    pub(super) others: Vec<Guard<'a, Arena>>,
    pub(crate) statistics: Guard<'a, DeviceStatistics>,
}

type First<'a> = Option<Guard<'a, Arena>>;

impl Arenas {
    /// Everything counted so far.
    pub(crate) fn sum(&self) -> Statistics {
        let mut held = self.hold_active(None);
        held.sum();
        held.statistics.totals
    }

    pub(crate) fn reset_peak(&self) {
        let mut held = self.hold_active(None);
        held.sum();
        let Held { first, others, statistics, .. } = &mut held;
        statistics.totals.reset_peak();
        for arena in first.iter_mut().chain(others) {
            arena.counters_mut().set_headroom(PoolAmounts::default());
        }
    }

    pub(crate) fn reset_accumulated(&self) {
        let Held { first, others, statistics, .. } = &mut self.hold_active(None);
        statistics.reset_accumulated(counters(first, others));
    }

    /// Holds all arenas.
    pub(crate) fn hold_all(&self) -> Held<'_> {
        let setup = self.setup.lock_soon();
        let (first, others) = hold(None, self.all());
        Held { setup, first, others, statistics: self.statistics() }
    }

    /// Holds the arenas whose counters have something or may add something, and first this one, also if it is idle.
    pub(super) fn hold_active(&self, first: Option<StreamId>) -> Held<'_> {
        let setup = self.setup.lock_soon();
        let others = setup.active.iter().filter(|active| Some(**active) != first);
        let first = first.map(|stream| self.of(stream).lock_soon());
        let (first, others) = hold(first, others.map(|stream| self.of(*stream)));
        Held { setup, first, others, statistics: self.statistics() }
    }
}

/// Locks arenas. Nobody waits for the setup with an arena held, and only a thread that has the setup holds several arenas: so
/// these need no order among themselves.
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
    /// Brings the statistics up to date.
    fn sum(&mut self) {
        let Self { first, others, statistics, .. } = self;
        // Whether the counters of a stream had changed that became idle is known to the one whose settling made it so.
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
