//! When work happens: later, and in any order that lanes and conditions permit, chosen by the seed.
//!
//! There is no scheduler thread. Work advances on the thread that waits or queries.

use std::collections::BTreeSet;

use crate::engine::{Engine, Handle};
use crate::face::Face;
use crate::lane::{Condition, Operation, Position, Times};
use crate::session::Session;
use crate::signal::Signal;
use crate::work::Work;

/// A query lets fewer than this many operations happen, perhaps none.
const STEPS_OF_A_QUESTION: usize = 4;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Every condition holds.
    Over,
    /// The deadline passed first.
    TooLate,
    /// Nothing submitted so far can make the conditions hold; only another thread could.
    Never,
}

/// What must advance for a condition to hold.
enum Needed {
    Lane(Handle),
    HostFunction,
    Nothing,
}

impl<F: Face> Engine<F> {
    fn can_run(&self, lane: Handle) -> bool {
        let Some(state) = self.lanes.get(&lane).filter(|state| !state.running) else { return false };
        let first = state.queue.front();
        first.is_some_and(|(_, operation)| operation.after.iter().all(|condition| self.holds(*condition)))
    }

    /// Chooses one of the lanes that can advance, if there is one.
    fn any_lane(&mut self) -> Option<Handle> {
        let free = self.lanes.iter().filter(|(_, state)| !state.held).map(|(handle, _)| *handle);
        let able: Vec<Handle> = free.filter(|handle| self.can_run(*handle)).collect();
        self.random.choice(able)
    }

    /// Returns what must advance for a condition to hold. Lanes in `seen` have already been followed: they are dead
    /// ends, or wait for each other.
    fn needed_for(&self, awaited: Condition, seen: &mut BTreeSet<Handle>) -> Needed {
        let lanes = match awaited {
            Condition::Over(position) => vec![position.lane],
            Condition::Set(signal) => self.setting(signal).into_iter().map(|position| position.lane).collect(),
        };
        let mut needed = Needed::Nothing;
        for lane in lanes {
            match self.needed_in(lane, seen) {
                Needed::Nothing => {}
                Needed::HostFunction => needed = Needed::HostFunction,
                found @ Needed::Lane(_) => return found,
            }
        }
        needed
    }

    fn needed_in(&self, lane: Handle, seen: &mut BTreeSet<Handle>) -> Needed {
        let Some(state) = self.lanes.get(&lane).filter(|_| seen.insert(lane)) else { return Needed::Nothing };
        if state.running {
            return Needed::HostFunction;
        }
        let Some((_, first)) = state.queue.front() else { return Needed::Nothing };
        match first.after.iter().find(|condition| !self.holds(**condition)) {
            None => Needed::Lane(lane),
            Some(condition) => self.needed_for(*condition, seen),
        }
    }

    /// Returns the submitted operations that will set a signal.
    pub fn setting(&self, signal: Signal) -> Vec<Position> {
        self.pending(|operation| operation.sets == Some(signal))
    }

    /// Returns the submitted operations that will reset a signal.
    pub fn resetting(&self, signal: Signal) -> Vec<Position> {
        self.pending(|operation| matches!(operation.work, Work::Reset(reset) if reset == signal))
    }

    /// Returns the submitted operations that wait for a signal.
    pub fn awaiting(&self, signal: Signal) -> Vec<Position> {
        self.pending(|operation| operation.after.contains(&Condition::Set(signal)))
    }
}

impl<F: Face> Session<F> {
    /// Returns when all conditions hold, or when nothing submitted can make them hold. Other work may happen meanwhile,
    /// but work of held lanes only where it is needed.
    pub fn wait<C: Into<Condition> + Copy>(&mut self, awaited: &[C]) -> Waited {
        self.wait_until(awaited, u64::MAX)
    }

    /// Like [`Self::wait`], but gives up when the virtual clock has reached `deadline`. The clock may then be past it
    /// by the duration of one operation.
    pub fn wait_until<C: Into<Condition> + Copy>(&mut self, awaited: &[C], deadline: u64) -> Waited {
        // How often, in quarters, other lanes go first. It is constant for the whole wait, so in some waits the awaited
        // lanes fall far behind.
        let quarters = self.engine_mut().random.u8(..4);
        loop {
            let engine = self.engine_mut();
            let missing = awaited.iter().map(|condition| (*condition).into());
            let Some(next) = missing.into_iter().find(|condition| !engine.holds(*condition)) else {
                return Waited::Over;
            };
            if engine.clock >= deadline {
                return Waited::TooLate;
            }
            let other = if engine.random.u8(..4) < quarters { engine.any_lane() } else { None };
            let needed = || engine.needed_for(next, &mut BTreeSet::new());
            match other.map_or_else(needed, Needed::Lane) {
                Needed::Lane(lane) => self.step(lane),
                Needed::HostFunction => self.wait_for_others(),
                Needed::Nothing => return Waited::Never,
            }
        }
    }

    /// Executes a few operations, as a real device makes progress while a program polls.
    pub fn advance(&mut self) {
        for _ in 0..self.engine_mut().random.usize(..STEPS_OF_A_QUESTION) {
            let Some(lane) = self.engine_mut().any_lane() else { return };
            self.step(lane);
        }
    }

    /// Executes the next operation of a lane.
    fn step(&mut self, lane: Handle) {
        let engine = self.engine_mut();
        engine.catch_up();
        let Some(state) = engine.lanes.get_mut(&lane) else { return };
        let device = state.device;
        let Some((number, operation)) = state.queue.front_mut() else { return };
        let at = Position { lane, number: *number };
        let work = std::mem::replace(&mut operation.work, Work::Nothing);
        let began = engine.clock;
        engine.clock += work.duration();
        let times = Times { began, ended: engine.clock };
        if let Work::HostFunction(function) = work {
            // The operation stays in its queue until the function has returned.
            state.running = true;
            return self.start_host_function(at, function, times);
        }
        let operation = state.queue.pop_front().map(|(_, operation)| operation);
        let performed = self.perform(device, work);
        let engine = self.engine_mut();
        engine.take_time();
        let times = Times { began, ended: engine.clock };
        match performed {
            Ok(()) => self.finish(at, operation, times),
            Err(fault) => {
                self.engine_mut().violations.push(fault.text.clone());
                self.failed(at, &fault);
                self.finish(at, None, times);
            }
        }
    }

    /// Completes an operation and triggers its signal and mark. With `None`, nothing is triggered.
    pub(crate) fn finish(&mut self, at: Position, operation: Option<Operation<F>>, times: Times) {
        let (sets, mark) = operation.map_or((None, None), |operation| (operation.sets, operation.mark));
        if let Some(signal) = sets {
            self.engine_mut().signals.set(signal, times);
        }
        if let Some(mark) = mark {
            self.reached(at, mark, times);
        }
        let engine = self.engine_mut();
        if let Some(lane) = engine.lanes.get_mut(&at.lane) {
            lane.completed = lane.completed.max(at.number);
        }
        engine.forget_lane_if_gone(at.lane);
    }
}
