//! Lanes: queues of work that happens later, one operation after another.

use std::collections::VecDeque;

use crate::engine::{Engine, Handle};
use crate::face::Face;
use crate::signal::Signal;
use crate::work::Work;

/// An operation of a lane, counted from 1. It is over once the lane has completed that many operations, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The lane.
    pub lane: Handle,
    /// The operation's number; operation 0 is over from the start.
    pub number: u64,
}

/// What an operation, or a waiting caller, may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// An operation is over.
    Over(Position),
    /// A signal is set at that moment.
    Set(Signal),
}

impl From<Position> for Condition {
    fn from(position: Position) -> Self {
        Self::Over(position)
    }
}

impl From<Signal> for Condition {
    fn from(signal: Signal) -> Self {
        Self::Set(signal)
    }
}

/// When an operation happened, in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When it began.
    pub began: u64,
    /// When it was over.
    pub ended: u64,
}

/// Work, with its preconditions and what happens when it is over.
pub struct Operation<F: Face> {
    /// Conditions that must hold first, besides all earlier operations of its lane being over.
    pub after: Vec<Condition>,
    /// What it does.
    pub work: Work,
    /// The signal that it sets when it is over.
    pub sets: Option<Signal>,
    /// The mark passed to the face when it is over.
    pub mark: Option<F::Mark>,
}

impl<F: Face> Operation<F> {
    /// Creates an operation that waits only for the operations before it in its lane.
    pub fn new(work: Work) -> Self {
        Self { after: Vec::new(), work, sets: None, mark: None }
    }

    /// Adds conditions that it waits for.
    #[must_use]
    pub fn after<C: Into<Condition>>(mut self, conditions: impl IntoIterator<Item = C>) -> Self {
        self.after.extend(conditions.into_iter().map(Into::into));
        self
    }

    /// Makes it set a signal.
    #[must_use]
    pub fn sets(mut self, signal: Signal) -> Self {
        self.sets = Some(signal);
        self
    }

    /// Makes it notify the face.
    #[must_use]
    pub fn mark(mut self, mark: F::Mark) -> Self {
        self.mark = Some(mark);
        self
    }
}

/// A queue of work of one device.
pub struct Lane<F: Face> {
    /// The device that executes its work.
    pub device: usize,
    /// What the face stores with it.
    pub data: F::Lane,
    /// Runs nothing unless a caller waits for it.
    pub held: bool,
    /// Operations with their numbers.
    pub(crate) queue: VecDeque<(u64, Operation<F>)>,
    pub(crate) submitted: u64,
    /// Operations up to this number are over.
    pub(crate) completed: u64,
    /// The first operation in the queue is a host function, which is running on its own thread.
    pub(crate) running: bool,
    closed: bool,
}

impl<F: Face> Lane<F> {
    /// Whether it is closed: the program can no longer name it, but its work still happens.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether all submitted work is over.
    pub fn is_idle(&self) -> bool {
        self.completed >= self.submitted
    }

    /// Marks all its work as over without executing it. A running host function continues.
    pub fn drop_work(&mut self) {
        self.queue.clear();
        self.completed = self.submitted;
    }

    /// Whether nothing can observe it any more.
    fn is_gone(&self) -> bool {
        self.closed && self.queue.is_empty() && !self.running
    }
}

impl<F: Face> Engine<F> {
    /// Creates a lane with a handle from [`Engine::new_handle`]. Lanes are tried in the order of their handles.
    pub fn open_lane(&mut self, handle: Handle, device: usize, data: F::Lane) {
        let lane = Lane {
            device,
            data,
            held: false,
            queue: VecDeque::new(),
            submitted: 0,
            completed: 0,
            running: false,
            closed: false,
        };
        self.lanes.insert(handle, lane);
    }

    /// Removes a lane once its work is over. The remaining work still happens.
    pub fn close_lane(&mut self, handle: Handle) {
        if let Some(lane) = self.lanes.get_mut(&handle) {
            lane.closed = true;
            lane.held = false;
        }
        self.forget_lane_if_gone(handle);
    }

    pub(crate) fn forget_lane_if_gone(&mut self, handle: Handle) {
        if self.lanes.get(&handle).is_some_and(Lane::is_gone) {
            self.lanes.remove(&handle);
        }
    }

    /// Marks the work of the selected lanes as over without executing it.
    pub fn drop_work(&mut self, mut of: impl FnMut(Handle, &Lane<F>) -> bool) {
        for (handle, lane) in &mut self.lanes {
            if of(*handle, lane) {
                lane.drop_work();
            }
        }
        self.lanes.retain(|_, lane| !lane.is_gone());
    }

    /// Submits work to a lane. Returns `None` if there is no such lane.
    pub fn submit(&mut self, lane: Handle, mut operation: Operation<F>) -> Option<Position> {
        // A signal may be reset before the operation's turn, but an operation that is over stays over.
        operation.after.retain(|condition| match condition {
            Condition::Over(position) => !self.is_over(*position),
            Condition::Set(_) => true,
        });
        let state = self.lanes.get_mut(&lane)?;
        state.submitted += 1;
        let number = state.submitted;
        state.queue.push_back((number, operation));
        Some(Position { lane, number })
    }

    /// Returns the position of the last operation submitted to a lane so far.
    pub fn end(&self, lane: Handle) -> Position {
        Position { lane, number: self.lanes.get(&lane).map_or(0, |lane| lane.submitted) }
    }

    /// Returns the last positions of the selected lanes so far.
    pub fn ends(&self, mut of: impl FnMut(Handle, &Lane<F>) -> bool) -> Vec<Position> {
        let chosen = self.lanes.iter().filter(|(handle, lane)| of(**handle, lane));
        chosen.map(|(handle, lane)| Position { lane: *handle, number: lane.submitted }).collect()
    }

    /// Whether an operation is over.
    pub fn is_over(&self, position: Position) -> bool {
        self.lanes.get(&position.lane).is_none_or(|lane| lane.completed >= position.number)
    }

    /// Whether a condition holds now.
    pub fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::Over(position) => self.is_over(position),
            Condition::Set(signal) => self.signals.is_set(signal),
        }
    }

    /// Returns the selected operations that were submitted but have not happened.
    pub fn pending(&self, mut of: impl FnMut(&Operation<F>) -> bool) -> Vec<Position> {
        let mut found = Vec::new();
        for (handle, lane) in &self.lanes {
            let queued = lane.queue.iter().filter(|(_, operation)| of(operation));
            found.extend(queued.map(|(number, _)| Position { lane: *handle, number: *number }));
        }
        found
    }

    /// Returns the pending operations that will touch a range of memory.
    pub fn uses(&self, address: u64, bytes: u64) -> Vec<Position> {
        self.pending(|operation| operation.work.touches(address, bytes))
    }

    /// Turns the pending operations that touch a range into empty ones, and returns how many there were.
    pub fn forget_uses(&mut self, address: u64, bytes: u64) -> usize {
        let queued = self.lanes.values_mut().flat_map(|lane| &mut lane.queue);
        let touching = queued.filter(|(_, operation)| operation.work.touches(address, bytes));
        touching.map(|(_, operation)| operation.work = Work::Nothing).count()
    }
}
