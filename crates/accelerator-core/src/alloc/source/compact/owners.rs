//! Streams as owners of free bytes. A stream may reuse at once what it freed; other streams may use it once the
//! stream's work up to then is over.
//!
//! Bytes are freed in *epochs* of their owner. An epoch ends with an event that is recorded on the stream. Once the
//! event is complete, any stream may use what was freed in that epoch or before.

use std::ops::{Index, IndexMut};

use super::placement_log::PlacementLog;
use crate::alloc::blocks::{Block, Owner};
use crate::types::StreamId;

#[derive(Debug, Default)]
pub(super) struct Owners {
    all: Vec<OwnerState>,
    /// The owner number plus one, indexed by stream number; 0 if none.
    numbers: Vec<Owner>,
    /// Whether an epoch should end.
    due: bool,
    /// An owner that is temporarily assumed to have access to everything, to see what that would save.
    pub(super) assumed: Option<Owner>,
}

/// The state of one owner.
#[derive(Debug)]
pub(super) struct OwnerState {
    pub(super) stream: StreamId,
    pub(super) log: PlacementLog,
    /// The epoch in which it frees now.
    pub(super) epoch: u32,
    /// Whether bytes were freed in this epoch.
    is_open: bool,
    /// The number of bytes freed in this epoch that had been in use.
    freed: u64,
    /// Epochs before this one are over.
    over: u32,
    /// For each other owner: its epochs before this one precede this owner's work, which waits for them on the device.
    behind: Vec<u32>,
}

/// An epoch should end when 1 / `EPOCH` of the reserved memory has been freed in it.
const EPOCH: u64 = 100;

impl Owners {
    /// The epoch of bytes that no stream has used.
    pub(super) const ALWAYS_OVER: u32 = 0;

    pub(super) fn number(&self, stream: StreamId) -> Option<Owner> {
        self.numbers.get(stream.get() as usize)?.checked_sub(1)
    }

    /// Returns the number of a stream, assigning one if needed; `None` if there are too many.
    pub(super) fn number_or_new(&mut self, stream: StreamId) -> Option<Owner> {
        if let Some(number) = self.number(stream) {
            return Some(number);
        }
        let count = Owner::try_from(self.all.len() + 1).ok()?;
        let place = stream.get() as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, 0);
        }
        self.numbers[place] = count;
        let (epoch, over) = (Self::ALWAYS_OVER + 1, Self::ALWAYS_OVER + 1);
        let (log, behind) = Default::default();
        self.all.push(OwnerState { stream, log, epoch, is_open: false, freed: 0, over, behind });
        Some(count - 1)
    }

    /// Returns whether the owner may use the free block's bytes.
    pub(super) fn can_use(&self, block: &Block, owner: Owner) -> bool {
        let Block { owner: of, free_since: epoch, .. } = *block;
        of == owner || self.is_over(of, epoch) || self.is_behind(owner, of, epoch) || self.assumed == Some(owner)
    }

    /// Returns whether all work of an owner up to the end of an epoch is known to be over.
    pub(super) fn is_over(&self, owner: Owner, epoch: u32) -> bool {
        epoch < self[owner].over
    }

    fn is_behind(&self, owner: Owner, other: Owner, epoch: u32) -> bool {
        self[owner].behind.get(usize::from(other)).is_some_and(|behind| epoch < *behind)
    }

    /// Records that an owner's work from now on comes after another owner's work up to the end of an epoch.
    pub(super) fn comes_behind(&mut self, owner: Owner, other: Owner, epoch: u32) {
        let behind = &mut self[owner].behind;
        if behind.len() <= usize::from(other) {
            behind.resize(usize::from(other) + 1, 0);
        }
        behind[usize::from(other)] = epoch.saturating_add(1);
    }

    /// Returns whether there is more than one owner.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Opens the owner's current epoch, in which bytes are about to be freed, and returns it.
    pub(super) fn open_epoch(&mut self, owner: Owner) -> u32 {
        let state = &mut self[owner];
        state.is_open = true;
        state.epoch
    }

    /// Counts bytes that were in use and are freed now. As [`open_epoch`](Self::open_epoch), opens the owner's epoch
    /// and returns it.
    #[inline(always)]
    pub(super) fn freed(&mut self, owner: Owner, bytes: u64, reserved: u64) -> u32 {
        let are_several = self.are_several();
        let state = &mut self.all[usize::from(owner)];
        state.is_open = true;
        state.freed += bytes;
        self.due |= are_several && state.freed >= reserved / EPOCH;
        state.epoch
    }

    /// Returns whether an epoch should end. The warm path checks only this flag.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Ends the epochs in which much was freed, or with `all` every open one, of the owners that `may` accepts. Returns
    /// them with their streams.
    pub(super) fn end_epochs(
        &mut self,
        all: bool,
        reserved: u64,
        may: impl Fn(Owner) -> bool,
    ) -> Vec<(Owner, StreamId, u32)> {
        self.due = false;
        let mut ended = Vec::new();
        // The numbers come second, so that none beyond the last owner's is made, which would overflow.
        for (state, number) in self.all.iter_mut().zip(0..) {
            let freed = std::mem::take(&mut state.freed);
            if state.is_open && (all || freed >= reserved / EPOCH) && may(number) {
                ended.push((number, state.stream, state.epoch));
                state.epoch = state.epoch.saturating_add(1); // the last epoch is never known to be over
                state.is_open = false;
            } else if freed < reserved / EPOCH {
                state.freed = freed;
            }
        }
        ended
    }

    /// Reopens the owner's epoch, because no event could mark the end of the previous one.
    pub(super) fn not_marked(&mut self, owner: Owner) {
        self[owner].is_open = true;
    }

    /// Records that the owner's work up to the end of an epoch is over.
    pub(super) fn epoch_over(&mut self, owner: Owner, epoch: u32) {
        let over = &mut self[owner].over;
        *over = (*over).max(epoch.saturating_add(1));
    }
}

impl Index<Owner> for Owners {
    type Output = OwnerState;

    fn index(&self, owner: Owner) -> &OwnerState {
        &self.all[usize::from(owner)]
    }
}

impl IndexMut<Owner> for Owners {
    fn index_mut(&mut self, owner: Owner) -> &mut OwnerState {
        &mut self.all[usize::from(owner)]
    }
}

#[cfg(test)]
mod tests;
