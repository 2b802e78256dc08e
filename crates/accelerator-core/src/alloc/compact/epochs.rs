//! Where the epochs of owners end: events tell what is over, and who waits for it.

use super::memory::{Mark, Memory};
use super::owners::Owner;
use crate::alloc::CachingAllocator;
use crate::backend::{Backend, DriverResult};
use crate::stream::Stream;
use crate::types::StreamId;

/// Epochs of an owner whose ends may be awaited at once: one that is never done needs no more.
const MARKS: usize = 64;

impl<B: Backend> CachingAllocator<B> {
    /// Ends epochs, where much was freed or all, and sees which are over; nothing of that while work of the asking stream is captured.
    pub(super) fn end_epochs(&self, memory: &mut Memory<B>, asking: Stream<B>, all: bool) {
        if !matches!(self.is_capturing(asking), Ok(false)) {
            return;
        }
        let ended = {
            let mut arena = self.arena(StreamId::SHARED).lock();
            let compact = arena.compact_mut();
            let is_of_use = compact.owners.are_several() || compact.has_old_strips();
            let marks = |owner| memory.marks.iter().filter(|mark| mark.owner == owner).count();
            compact.owners.end_epochs(all, compact.reserved, |owner| is_of_use && marks(owner) < MARKS)
        };
        self.mark(memory, ended);
        self.see_what_is_over(memory);
    }

    /// Records events where epochs have ended.
    pub(super) fn mark(&self, memory: &mut Memory<B>, ended: Vec<(Owner, StreamId, u32)>) {
        for (owner, stream, epoch) in ended {
            match self.record_use_end(stream) {
                Ok(Some(event)) => memory.marks.push_back(Mark { owner, epoch, event }),
                _ => self.arena(StreamId::SHARED).lock().compact_mut().owners.not_marked(owner),
            }
        }
    }

    /// Makes the stream wait, on the device, for the epochs of all others that have ended. What it will not wait for stays theirs.
    pub(super) fn wait_on_device(&self, memory: &Memory<B>, stream: Stream<B>) {
        let newest =
            memory.marks.iter().enumerate().filter(|(place, mark)| {
                !memory.marks.range(place + 1..).any(|later| later.owner == mark.owner)
            });
        for (_, Mark { owner, epoch, event }) in newest {
            if self.backend.wait(stream.native(), event).is_ok() {
                let mut arena = self.arena(StreamId::SHARED).lock();
                let own = arena.owner_number(stream.id());
                arena.compact_mut().owners.comes_behind(own, *owner, *epoch);
            }
        }
    }

    /// Notes which epochs are over, without waiting.
    fn see_what_is_over(&self, memory: &mut Memory<B>) {
        let mut open: Vec<Owner> = Vec::new();
        let mut over = Vec::new();
        memory.marks = std::mem::take(&mut memory.marks)
            .into_iter()
            .filter_map(|mark| {
                let is_over =
                    !open.contains(&mark.owner) && matches!(self.backend.is_complete(&mark.event), Ok(true));
                if is_over {
                    self.pending.put_back(mark.event);
                    over.push((mark.owner, mark.epoch));
                    return None;
                }
                open.push(mark.owner);
                Some(mark)
            })
            .collect();
        if !over.is_empty() {
            let mut arena = self.arena(StreamId::SHARED).lock();
            over.into_iter().for_each(|(owner, epoch)| arena.compact_mut().owners.epoch_over(owner, epoch));
        }
    }

    /// Waits until all is over that was freed so far, by one stream or by all.
    pub(super) fn wait_for_epochs(
        &self,
        memory: &mut Memory<B>,
        waits_for: Option<Stream<B>>,
    ) -> DriverResult<()> {
        let (ended, only) = {
            let mut arena = self.arena(StreamId::SHARED).lock();
            let only = waits_for.map(|stream| arena.owner_number(stream.id()));
            let compact = arena.compact_mut();
            let ended = compact
                .owners
                .end_epochs(true, compact.reserved, |owner| only.is_none_or(|only| only == owner));
            (ended, only)
        };
        self.mark(memory, ended);
        let mut result = Ok(());
        memory.marks = std::mem::take(&mut memory.marks)
            .into_iter()
            .filter_map(|mark| {
                if result.is_err() || only.is_some_and(|only| only != mark.owner) {
                    return Some(mark);
                }
                result = self.wait_until_over(&mark.event);
                if result.is_err() {
                    return Some(mark);
                }
                let mut arena = self.arena(StreamId::SHARED).lock();
                arena.compact_mut().owners.epoch_over(mark.owner, mark.epoch);
                drop(arena);
                self.pending.put_back(mark.event);
                None
            })
            .collect();
        result
    }
}
