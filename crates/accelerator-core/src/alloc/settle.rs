//! Where the streams' accounts and the books of the device come together: statistics, and operations that may move a peak.

use std::sync::MutexGuard;

use super::account::{Account, NoRoom};
use super::amounts::Share;
use super::arena::Arena;
use super::ledger::Books;
use super::{CachingAllocator, Setup};
use crate::backend::Backend;
use crate::sync::{Guard, OwnedLock, lock};
use crate::types::{Statistics, StreamId};

/// All arenas and the books, held: nothing changes meanwhile, and no arena is made.
pub(super) struct Held<'a, P> {
    pub(super) setup: MutexGuard<'a, Setup>,
    /// One of them; `None`: there is none yet. Most programs have no other, so it needs no memory.
    first: Option<Guard<'a, Arena<P>>>,
    others: Vec<Guard<'a, Arena<P>>>,
    pub(super) books: MutexGuard<'a, Books>,
}

impl<B: Backend> CachingAllocator<B> {
    /// Everything counted so far. Consistent, also while other threads allocate.
    ///
    /// A peak is that of the sums over all threads, in the order in which their calls entered the books.
    pub fn statistics(&self) -> Statistics {
        let mut held = self.hold_all(None);
        *held.sum()
    }

    /// Sets every peak to the current value. PyTorch: `reset_peak_memory_stats`.
    pub fn reset_peak_statistics(&self) {
        let mut held = self.hold_all(None);
        held.sum();
        held.books.statistics.reset_peak();
        held.arenas_mut().for_each(|arena| arena.account.set_room(Share::NONE));
    }

    /// Sets the accumulated values and the counters of events to 0. PyTorch: `reset_accumulated_memory_stats`.
    pub fn reset_accumulated_statistics(&self) {
        let Held { first, others, books, setup: _setup } = &mut self.hold_all(None);
        books.reset_accumulated(accounts(first, others));
    }

    /// Does what an account had no room for, with all of them held: so peaks are exact, and room can be dealt out anew.
    /// The stream's arena is there already.
    #[cold]
    pub(super) fn settled<T>(
        &self,
        stream: StreamId,
        operation: impl FnOnce(&mut Arena<B::Ptr>, &mut Books) -> Result<T, NoRoom>,
    ) -> T {
        let mut held = self.hold_all(Some(self.arena(stream)));
        let Some(arena) = &mut held.first else { unreachable!("the arena was asked for") };
        arena.account.set_room(Share::BOUNDLESS);
        let Ok(done) = operation(arena, &mut held.books) else { unreachable!("there is room for anything") };
        held.sum();
        held.deal_out_room();
        done
    }

    /// Holds all arenas, and lists this one first. Nobody waits for the setup with an arena held, and only who has the setup holds
    /// several arenas: so these need no order among themselves.
    pub(super) fn hold_all<'a>(&'a self, first: Option<&'a OwnedLock<Arena<B::Ptr>>>) -> Held<'a, B::Ptr> {
        let setup = lock(&self.setup);
        let first = first.or_else(|| self.arenas.iter().next());
        let others =
            self.arenas.iter().filter(|arena| !first.is_some_and(|first| std::ptr::eq(*arena, first)));
        let others = others.map(OwnedLock::lock_soon).collect();
        Held { setup, first: first.map(OwnedLock::lock_soon), others, books: self.ledger.lock() }
    }
}

impl<P> Held<'_, P> {
    pub(super) fn arenas(&self) -> impl Iterator<Item = &Arena<P>> {
        self.first.iter().chain(&self.others).map(|arena| &**arena)
    }

    fn arenas_mut(&mut self) -> impl Iterator<Item = &mut Arena<P>> {
        self.first.iter_mut().chain(&mut self.others).map(|arena| &mut **arena)
    }

    /// Brings the statistics up to date.
    fn sum(&mut self) -> &Statistics {
        self.books.sum(accounts(&self.first, &self.others));
        &self.books.statistics
    }

    /// Half of what may be added before a peak moves goes to the first arena, which asked and will ask again; the others
    /// share the rest.
    fn deal_out_room(&mut self) {
        let room = self.books.room();
        let of_others =
            if self.others.is_empty() { Share::NONE } else { room.part(2).part(self.others.len()) };
        let of_first = self.others.iter().fold(room, |left, _| left.without(of_others));
        self.arenas_mut().for_each(|arena| arena.account.set_room(of_others));
        if let Some(first) = &mut self.first {
            first.account.set_room(of_first);
        }
    }
}

/// The accounts of arenas that are held.
fn accounts<'a, P>(
    first: &'a Option<Guard<'_, Arena<P>>>,
    others: &'a [Guard<'_, Arena<P>>],
) -> impl Iterator<Item = &'a Account> {
    first.iter().chain(others).map(|arena| &arena.account)
}

#[cfg(test)]
mod tests;
