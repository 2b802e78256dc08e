//! Frees in a capture of blocks that other streams used. The captured uses have not run, and no event can be recorded
//! for them, so these frees take effect when the capture is over, or as soon as the graph orders what comes next after
//! every use.

use super::{Arrived, PendingBlock, PendingFrees, Queues, use_over};
use crate::alloc::blocks::{CaptureNumber, User, Users};
use crate::alloc::source::{Context, Memory};
use crate::graphs::CaptureMode;
use crate::sync::Step;
use crate::sync::primitives::atomic::{AtomicUsize, Ordering};
use crate::sync::primitives::{Mutex, lock};
use crate::types::{Result, StreamId};

/// The captures that are underway.
#[derive(Default)]
pub(super) struct Captures {
    underway: Mutex<Vec<(u64, CaptureMode)>>,
    count: AtomicUsize,
}

/// A free that waits for the end of a capture.
pub(super) struct Deferred {
    pub(super) block: PendingBlock,
    /// The stream of the block.
    stream: StreamId,
    pub(super) users: Users,
    /// The capture that the free is part of.
    capture: u64,
    /// A node after each use, and one after the work of the block's own stream; empty if the graph does not show when
    /// all uses are over.
    marks: Vec<u64>,
}

impl Deferred {
    /// Returns whether all of a use is part of the same capture. A use of an earlier capture may have been meant for
    /// work that came after it, and ran.
    fn has_captured(&self, user: User) -> bool {
        user.captured_in.is_some() && user.captured_in == CaptureNumber::new(self.capture)
    }
}

impl PendingFrees {
    /// Notes that a capture with this number has begun.
    pub(crate) fn capture_begun(&self, number: u64, mode: CaptureMode) {
        self.change_captures(|underway| underway.push((number, mode)));
    }

    /// Notes that a capture is over.
    pub(crate) fn capture_ended(&self, number: u64) {
        self.change_captures(|underway| underway.retain(|(of, _)| *of != number));
    }

    fn change_captures(&self, change: impl FnOnce(&mut Vec<(u64, CaptureMode)>)) {
        let mut underway = lock(&self.captures.underway);
        change(&mut underway);
        self.captures.count.store(underway.len(), Ordering::SeqCst);
    }

    /// Returns whether memory may go back to the driver during a capture without breaking it.
    pub(crate) fn may_free_in(&self, capture: u64) -> bool {
        lock(&self.captures.underway).contains(&(capture, CaptureMode::Relaxed))
    }

    /// Returns whether this capture is underway, and began with a graph of this crate.
    pub(crate) fn is_underway(&self, capture: u64) -> bool {
        lock(&self.captures.underway).iter().any(|(number, _)| *number == capture)
    }

    /// Returns whether any capture is underway.
    #[inline(always)]
    pub(crate) fn has_captures(&self) -> bool {
        self.captures.count.load(Ordering::Relaxed) > 0
    }

    /// Makes a freed block wait for the end of a capture. With `graph_capture_record_stream_reuse`, it may become free
    /// earlier.
    #[cold]
    pub(crate) fn defer(&self, context: &Context, begun: Step<'_>, block: PendingBlock, users: Users, capture: u64) {
        let events = &context.events;
        let arena = context.arenas.of(block.arena).lock();
        let (stream, reuses) = (arena.stream_of(block.block), arena.config().graph_capture_record_stream_reuse);
        drop(arena);
        let mut deferred = Deferred { block, stream, users, capture, marks: Vec::new() };
        // The graph does not order work from before the capture, which has events to wait for.
        if reuses && deferred.users.iter().all(|user| deferred.has_captured(user)) {
            let mut streams = vec![stream];
            streams.extend(deferred.users.iter().map(|user| user.stream));
            let marked = streams.into_iter().map(|stream| events.mark(stream).ok().flatten());
            deferred.marks = marked.collect::<Option<_>>().unwrap_or_default();
        }
        let mut arriving = lock(&self.arriving);
        arriving.deferred.push(deferred);
        self.has_arrived.store(true, Ordering::Release);
        drop(arriving);
        drop(begun);
    }

    /// In a capture, frees the blocks of this stream whose uses all precede what the stream captures next. PyTorch:
    /// `free_safe_blocks_in_capture`.
    #[cold]
    #[inline(never)]
    pub(super) fn free_ordered(&self, memory: &Memory, stream: StreamId) -> Result<()> {
        let is_candidate = |free: &Deferred| free.stream == stream && !free.marks.is_empty();
        let marks: Vec<u64> = {
            let arriving = lock(&self.arriving);
            arriving.deferred.iter().filter(|free| is_candidate(free)).flat_map(|free| free.marks.clone()).collect()
        };
        if marks.is_empty() {
            return Ok(());
        }
        let preceding = memory.context.events.precede(&marks, stream).map_err(|error| memory.context.error(error))?;
        let precedes = |mark: &u64| marks.iter().zip(&preceding).any(|(known, precedes)| known == mark && *precedes);
        let is_ordered = |free: &Deferred| is_candidate(free) && free.marks.iter().all(precedes);
        for free in self.take_deferred(is_ordered) {
            free.users.iter().for_each(|_| use_over(memory, free.block));
        }
        Ok(())
    }

    /// Lets the deferred frees take effect whose captures are over.
    #[cold]
    pub(super) fn end_deferred(&self, memory: &Memory, queues: &mut Queues) {
        let ended = {
            // In this order: the capture of a free that has arrived is known by then.
            let mut arriving = lock(&self.arriving);
            let underway = lock(&self.captures.underway);
            let has_ended = |free: &mut Deferred| underway.iter().all(|(number, _)| *number != free.capture);
            arriving.deferred.extract_if(.., has_ended).collect()
        };
        self.carry_out(memory, queues, ended);
    }

    /// Lets the deferred frees take effect whose captures are over, unless another thread is about to.
    pub(crate) fn end_captured_frees(&self, memory: &Memory) {
        if let Some(mut queues) = self.queues.try_lock() {
            self.end_deferred(memory, &mut queues);
        }
    }

    /// Lets the deferred frees of these blocks take effect that were part of this capture, which is over.
    pub(crate) fn end_deferred_of(&self, memory: &Memory, capture: u64, is_chosen: impl Fn(PendingBlock) -> bool) {
        let mut queues = self.queues.lock();
        let ended = self.take_deferred(|free| free.capture == capture && is_chosen(free.block));
        self.carry_out(memory, &mut queues, ended);
    }

    /// Forgets the uses that were captured with the free, and waits for the others.
    fn carry_out(&self, memory: &Memory, queues: &mut Queues, frees: Vec<Deferred>) {
        for free in frees {
            for User { stream, .. } in free.users.iter().filter(|user| !free.has_captured(*user)) {
                let event = memory.context.events.record(stream).ok().flatten();
                self.queued.store(true, Ordering::Relaxed);
                queues.push(Arrived { user: stream, event, block: free.block });
            }
            free.users.iter().filter(|user| free.has_captured(*user)).for_each(|_| use_over(memory, free.block));
        }
    }

    fn take_deferred(&self, is_chosen: impl Fn(&Deferred) -> bool) -> Vec<Deferred> {
        let mut arriving = lock(&self.arriving);
        arriving.deferred.extract_if(.., |free| is_chosen(free)).collect()
    }
}
