//! The ends of epochs: events show which epochs are over, and order streams after one another.

use std::collections::VecDeque;

use super::Compact;
use crate::alloc::arena::{Arena, ArenaId};
use crate::alloc::blocks::Owner;
use crate::alloc::driver::{Mappings, MappingsMut};
use crate::alloc::source::context::Context;
use crate::event::{self, EventNumber};
use crate::sync::Guard;
use crate::sync::primitives::MutexGuard;
use crate::types::{DriverResult, StreamId};

/// The maximum number of ended epochs of one owner that are not known to be over. A stream that makes no progress needs
/// no more events.
const ENDS: usize = 64;

/// The mappings of the policy, and the events at the ends of epochs.
#[derive(Default)]
pub(super) struct Mapped {
    pub(super) mappings: Mappings,
    /// The ends of epochs, oldest first.
    ends: VecDeque<EpochEnd>,
    /// The answer when the driver was last asked how much memory is free, and how much was charged then.
    pub(super) free: Option<(u64, u64)>,
}

/// The end of an owner's epoch.
struct EpochEnd {
    owner: Owner,
    epoch: u32,
    event: EventNumber,
}

/// A thread that maps or unmaps, with exclusive access to the policy's mappings.
pub(super) struct Mapper<'a> {
    pub(super) context: &'a Context,
    /// The policy's arena.
    pub(super) arena: ArenaId,
    pub(super) mapped: MutexGuard<'a, Mapped>,
}

impl<'a> Mapper<'a> {
    /// Returns the mappings, and the driver to change them with.
    pub(super) fn mappings(&mut self) -> MappingsMut<'_> {
        self.mapped.mappings.with(self.context.address_space())
    }

    /// Locks the policy's arena.
    pub(super) fn arena(&self) -> Guard<'a, Arena> {
        self.context.arenas.of(self.arena).lock()
    }

    /// Locks that arena for one operation of the policy.
    pub(super) fn in_arena<T>(&self, operation: impl FnOnce(&mut Compact) -> T) -> T {
        operation(Compact::of(&mut self.arena()))
    }

    /// Ends the epochs in which much was freed, or all of them, and polls which are over. Does nothing while the asking
    /// stream is being captured.
    pub(super) fn end_epochs(&mut self, asking: StreamId, all: bool) {
        if !matches!(self.context.events.is_capturing(asking), Ok(false)) {
            return;
        }
        let awaited = |owner| self.mapped.ends.iter().filter(|end| end.owner == owner).count();
        let ended = self.in_arena(|compact| {
            let is_of_use = compact.owners.are_several() || compact.aliases_limit().is_some();
            compact.owners.end_epochs(all, compact.costs.reserved, |owner| is_of_use && awaited(owner) < ENDS)
        });
        let _ = self.record_ends(ended); // what is not recorded is so the next time
        self.see_what_is_over();
    }

    /// Records an event for each epoch that has ended. Returns the first error, after trying all of them.
    fn record_ends(&mut self, ended: Vec<(Owner, StreamId, u32)>) -> DriverResult<()> {
        let mut result = Ok(());
        for (owner, stream, epoch) in ended {
            let recorded = self.context.events.record(stream);
            match &recorded {
                Ok(Some(event)) => self.mapped.ends.push_back(EpochEnd { owner, epoch, event: *event }),
                _ => self.in_arena(|compact| compact.owners.not_marked(owner)),
            }
            result = result.and(recorded.map(drop));
        }
        result
    }

    /// Makes the stream wait on the device for the ended epochs of all others. Where the driver refuses, nothing
    /// changes.
    pub(super) fn wait_on_device(&self, stream: StreamId) {
        let ends = &self.mapped.ends;
        let is_newest = |place: usize, owner| !ends.range(place + 1..).any(|later| later.owner == owner);
        let newest = ends.iter().enumerate().filter(|(place, end)| is_newest(*place, end.owner));
        for (_, EpochEnd { owner, epoch, event }) in newest {
            if self.context.events.wait_on_device(stream, *event).is_ok() {
                self.in_arena(|compact| compact.owners.comes_behind(compact.owner(stream), *owner, *epoch));
            }
        }
    }

    /// Polls which epochs are over, without waiting.
    fn see_what_is_over(&mut self) {
        let events = &*self.context.events;
        let mut open: Vec<Owner> = Vec::new();
        let mut over = Vec::new();
        self.mapped.ends.retain(|end| {
            let is_over = !open.contains(&end.owner) && matches!(event::is_over(events, end.event), Ok(true));
            match is_over {
                true => over.push((end.owner, end.epoch)),
                false => open.push(end.owner),
            }
            !is_over
        });
        if !over.is_empty() {
            self.in_arena(|compact| {
                over.into_iter().for_each(|(owner, epoch)| compact.owners.epoch_over(owner, epoch))
            });
        }
    }

    /// Waits until the work on everything freed so far is over, for one stream or for all.
    pub(super) fn wait_for_epochs(&mut self, waits_for: Option<StreamId>) -> DriverResult<()> {
        let (ended, only) = self.in_arena(|compact| {
            let only = waits_for.map(|stream| compact.owner(stream));
            let is_awaited = |owner| only.is_none_or(|only| only == owner);
            (compact.owners.end_epochs(true, compact.costs.reserved, is_awaited), only)
        });
        let recorded = self.record_ends(ended);
        let mut kept = VecDeque::new();
        let mut result = Ok(());
        for end in std::mem::take(&mut self.mapped.ends) {
            if result.is_ok() && only.is_none_or(|only| only == end.owner) {
                result = self.context.events.wait_until_over(end.event);
                if result.is_ok() {
                    self.in_arena(|compact| compact.owners.epoch_over(end.owner, end.epoch));
                    continue;
                }
            }
            kept.push_back(end);
        }
        self.mapped.ends = kept;
        recorded.and(result)
    }
}
