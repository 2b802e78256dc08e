//! Where the streams' accounts and the books of the device come together: statistics, and operations that may move a peak.

use super::account::{Account, NoRoom};
use super::amounts::Share;
use super::arena::Arena;
use super::ledger::Books;
use super::{CachingAllocator, Setup};
use crate::backend::Backend;
use crate::sync::{Guard, OwnedLock};
use crate::types::{Statistics, StreamId};

/// Arenas and the books, held: nothing changes in them meanwhile, no arena is made, and none wakes up or falls asleep.
pub(super) struct Held<'a, P> {
    pub(super) setup: Guard<'a, Setup>,
    /// One of them; `None`: there is none. Most programs have no other, so it needs no memory.
    first: First<'a, P>,
    others: Vec<Guard<'a, Arena<P>>>,
    pub(super) books: Guard<'a, Books>,
}

type First<'a, P> = Option<Guard<'a, Arena<P>>>;

impl<B: Backend> CachingAllocator<B> {
    /// Everything counted so far. Consistent, also while other threads allocate.
    ///
    /// A peak is that of the sums over all threads, in the order in which their calls entered the books.
    pub fn statistics(&self) -> Statistics {
        let mut held = self.hold_awake(None);
        held.sum();
        held.books.statistics
    }

    /// Sets every peak to the current value. PyTorch: `reset_peak_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        let mut held = self.hold_awake(None);
        held.sum();
        let Held { first, others, books, .. } = &mut held;
        books.statistics.reset_peak();
        first.iter_mut().chain(others).for_each(|arena| arena.account.set_room(Share::NONE));
    }

    /// Sets the accumulated values and the counters of events to 0. PyTorch: `reset_accumulated_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        let Held { first, others, books, .. } = &mut self.hold_awake(None);
        books.reset_accumulated(accounts(first, others));
    }

    /// Does it, and lets the arena go. The operation changes nothing where it finds no room.
    pub(super) fn counted<T>(
        &self,
        mut arena: Guard<'_, Arena<B::Ptr>>,
        operation: impl Fn(&mut Arena<B::Ptr>, &mut Books) -> Result<T, NoRoom>,
    ) -> T {
        let done = operation(&mut arena, &mut self.ledger.lock());
        match done {
            Ok(done) => done,
            Err(NoRoom) => self.settled(arena, operation),
        }
    }

    /// Does what the arena's account had no room for, with the room of all accounts at hand.
    #[cold]
    pub(super) fn settled<T>(
        &self,
        mut arena: Guard<'_, Arena<B::Ptr>>,
        operation: impl FnOnce(&mut Arena<B::Ptr>, &mut Books) -> Result<T, NoRoom>,
    ) -> T {
        if arena.account.is_alone {
            return beyond_room(&mut arena, &mut self.ledger.lock(), operation);
        }
        let stream = arena.stream;
        drop(arena);
        self.settled_with_others(stream, operation)
    }

    /// Holds all accounts that are awake; those that rest fall asleep.
    #[inline(never)]
    fn settled_with_others<T>(
        &self,
        stream: StreamId,
        operation: impl FnOnce(&mut Arena<B::Ptr>, &mut Books) -> Result<T, NoRoom>,
    ) -> T {
        let Held { setup, first: Some(arena), others, books } = &mut self.hold_awake(Some(stream)) else {
            unreachable!("the arena was asked for")
        };
        let all_room = others.iter().fold(arena.account.room(), |room, other| room + other.account.room());
        arena.account.set_room(all_room);
        others.iter_mut().for_each(|other| other.account.set_room(Share::NONE));
        let done = beyond_room(arena, books, operation);
        others.retain_mut(|other| {
            let rests = other.account.rests();
            if rests {
                arena.account.has_changed |= other.account.has_changed;
                books.put_to_sleep(&mut other.account);
            }
            !rests
        });
        deal_out_room(&mut arena.account, others.iter_mut().map(|other| &mut other.account));
        setup.awake.clear();
        setup.awake.extend(others.iter().map(|other| other.stream).chain([stream]));
        done
    }

    /// Holds all arenas.
    pub(super) fn hold_all(&self) -> Held<'_, B::Ptr> {
        let setup = self.setup.lock_soon();
        let (first, others) = hold(None, self.all_arenas());
        Held { setup, first, others, books: self.ledger.lock() }
    }

    /// Holds the arenas whose accounts have something or may add something, and lists this one first, also if it sleeps.
    fn hold_awake(&self, first: Option<StreamId>) -> Held<'_, B::Ptr> {
        let setup = self.setup.lock_soon();
        let others = setup.awake.iter().filter(|awake| Some(**awake) != first);
        let first = first.map(|stream| self.arena(stream).lock_soon());
        let (first, others) = hold(first, others.map(|stream| self.arena(*stream)));
        Held { setup, first, others, books: self.ledger.lock() }
    }
}

/// Locks arenas. Nobody waits for the setup with an arena held, and only who has the setup holds several arenas: so
/// these need no order among themselves.
#[inline(always)]
fn hold<'a, P>(
    mut first: First<'a, P>,
    arenas: impl Iterator<Item = &'a OwnedLock<Arena<P>>>,
) -> (First<'a, P>, Vec<Guard<'a, Arena<P>>>) {
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

/// Does it in an arena that has all the room there is. What it adds beyond that moves the peaks.
fn beyond_room<P, T>(
    arena: &mut Arena<P>,
    books: &mut Books,
    operation: impl FnOnce(&mut Arena<P>, &mut Books) -> Result<T, NoRoom>,
) -> T {
    let bounds = arena.account.lift_bounds();
    let Ok(done) = operation(arena, books) else { unreachable!("there is room for anything") };
    arena.account.set_bounds(bounds);
    done
}

/// At least half of what may be added before a peak moves stays with the account that asked and will ask again; the others
/// have equal parts.
fn deal_out_room<'a>(asked: &mut Account, others: impl ExactSizeIterator<Item = &'a mut Account>) {
    asked.is_alone = others.len() == 0;
    if asked.is_alone {
        return;
    }
    let mut room = asked.room();
    let part = room.halved(1 + others.len().next_power_of_two().ilog2()); // divisions are slow
    for other in others {
        other.set_room(part);
        other.is_alone = false;
        room = room - part;
    }
    asked.set_room(room);
}

impl<P> Held<'_, P> {
    /// Brings the statistics up to date.
    fn sum(&mut self) {
        let Self { first, others, books, .. } = self;
        // Whether an account has changed that fell asleep, who put it to sleep knows.
        let mut changed = false;
        for arena in first.iter_mut().chain(&mut *others) {
            changed |= std::mem::take(&mut arena.account.has_changed);
        }
        if changed {
            books.sum(accounts(first, others));
        }
    }

    pub(super) fn arenas(&self) -> impl Iterator<Item = &Arena<P>> {
        self.first.iter().chain(&self.others).map(|arena| &**arena)
    }
}

/// The accounts of arenas that are held.
fn accounts<'a, P>(
    first: &'a First<'_, P>,
    others: &'a [Guard<'_, Arena<P>>],
) -> impl Iterator<Item = &'a Account> + Clone {
    first.iter().chain(others).map(|arena| &arena.account)
}

#[cfg(test)]
mod tests;
