//! When work happens: later, and in any order that the rules of streams and events permit, chosen by the
//! seed.
//!
//! There is no thread for it. Work advances when somebody waits or asks, on the thread that does.

use std::thread::Builder;

use crate::code::Outcome;
use crate::state::{Driver, Handle, Session};
use crate::stream::{Kind, Operation};
use crate::thread;
use crate::work::{HostFunction, Work};

/// An operation of a stream. It is over when the stream has completed as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) stream: Handle,
    pub(crate) number: u64,
}

/// A question about progress lets fewer than so many operations happen, perhaps none.
const STEPS_OF_A_QUESTION: usize = 4;

impl Driver {
    pub(crate) fn is_over(&self, position: Position) -> bool {
        self.streams.get(&position.stream).is_none_or(|stream| stream.completed >= position.number)
    }

    /// Puts work into a stream; `None` if a capture took it instead.
    pub(crate) fn submit(
        &mut self,
        stream: Handle,
        work: Work,
        after: Option<Position>,
    ) -> Outcome<Option<Position>> {
        if self.capture_operation(stream)? {
            return Ok(None);
        }
        let mut after: Vec<Position> = after.into_iter().collect();
        after.extend(self.implied(stream));
        after.retain(|position| !self.is_over(*position));
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(None) };
        state.submitted += 1;
        let number = state.submitted;
        state.queue.push_back(Operation { number, after, work });
        Ok(Some(Position { stream, number }))
    }

    /// What the next operation of a stream comes after without being told: the legacy default stream and the
    /// blocking streams of a context wait for each other.
    fn implied(&self, stream: Handle) -> Vec<Position> {
        let Some(state) = self.streams.get(&stream) else { return Vec::new() };
        let awaited = match state.kind {
            Kind::Legacy => Kind::Blocking,
            Kind::Blocking => Kind::Legacy,
            Kind::NonBlocking => return Vec::new(),
        };
        let others = self.streams.iter();
        let others = others.filter(|(_, other)| other.context == state.context && other.kind == awaited);
        others.map(|(handle, other)| Position { stream: *handle, number: other.submitted }).collect()
    }

    fn can_run(&self, stream: Handle) -> bool {
        let Some(state) = self.streams.get(&stream).filter(|state| !state.running) else { return false };
        let first = state.queue.front();
        first.is_some_and(|operation| operation.after.iter().all(|position| self.is_over(*position)))
    }

    /// One of the streams that may go on, if there is one.
    fn any_stream(&mut self) -> Option<Handle> {
        let free = self.streams.iter().filter(|(_, state)| !state.held).map(|(handle, _)| *handle);
        let able: Vec<Handle> = free.filter(|handle| self.can_run(*handle)).collect();
        let chosen = self.random.below(able.len());
        able.get(chosen).copied()
    }

    /// The stream that has to go on for an operation to be over. Each step leads to work submitted earlier,
    /// so this ends. `None`: it is up to a host function.
    fn stream_needed_for(&self, mut awaited: Position) -> Option<Handle> {
        loop {
            let state = self.streams.get(&awaited.stream).filter(|state| !state.running)?;
            let waits_for = &state.queue.front()?.after;
            match waits_for.iter().find(|position| !self.is_over(**position)) {
                None => return Some(awaited.stream),
                Some(position) => awaited = *position,
            }
        }
    }

    fn finish(&mut self, position: Position) {
        let Some(state) = self.streams.get_mut(&position.stream) else { return };
        state.completed = state.completed.max(position.number);
        if state.is_gone() {
            self.streams.remove(&position.stream);
        }
    }
}

impl Session {
    /// Returns when all of these are over. Other work may happen meanwhile, but that of held streams only
    /// where it is needed.
    pub(crate) fn wait(&mut self, awaited: &[Position]) {
        // How often, in quarters, others go first: the same for the whole wait, so that some waits let others
        // lag far behind.
        let quarters = self.random.below(4);
        while let Some(next) = awaited.iter().copied().find(|position| !self.is_over(*position)) {
            let other = if self.random.below(4) < quarters { self.any_stream() } else { None };
            match other.or_else(|| self.stream_needed_for(next)) {
                Some(stream) => self.step(stream),
                None => self.wait_for_others(),
            }
        }
    }

    /// A few operations happen, as a real device goes on while a program asks.
    pub(crate) fn advance(&mut self) {
        for _ in 0..self.random.below(STEPS_OF_A_QUESTION) {
            let Some(stream) = self.any_stream() else { return };
            self.step(stream);
        }
    }

    /// The next operation of a stream happens.
    fn step(&mut self, stream: Handle) {
        let Ok(device) = self.device_of(stream) else { return };
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let context = state.context;
        let Some(operation) = state.queue.pop_front() else { return };
        let position = Position { stream, number: operation.number };
        self.clock += operation.work.duration();
        if let Work::HostFunction(function) = operation.work {
            return self.start_host_function(position, function);
        }
        if let Err(fault) = self.perform(position, device, operation.work) {
            self.violations.push(fault.text);
            self.fail_context(context, fault.code);
        }
        self.finish(position);
    }

    /// Runs a host function as the real driver does: on a thread of the driver's, which may take as long as
    /// it likes.
    fn start_host_function(&mut self, position: Position, host: HostFunction) {
        if let Some(state) = self.streams.get_mut(&position.stream) {
            state.running = true;
        }
        let started = Builder::new().spawn(move || {
            let HostFunction { function, data } = { host };
            thread::enter_host_function();
            // SAFETY: whoever gave the function says that it may be called with this.
            unsafe { function(data) };
            Session::new().end_host_function(position);
        });
        if started.is_err() {
            self.violations.push("no thread could be started for a host function".to_owned());
            self.end_host_function(position);
        }
    }

    fn end_host_function(&mut self, position: Position) {
        if let Some(state) = self.streams.get_mut(&position.stream) {
            state.running = false;
        }
        self.finish(position);
        self.tell_others();
    }
}
