//! Events, in pools: flags that commands set, reset and wait for.

use std::collections::BTreeSet;

use level_zero_sys::*;
use sim_engine::{Condition, Signal, Times};

use crate::arguments::{EventHandle, Object, PoolHandle};
use crate::device::ticks;
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Pool {
    pub(crate) context: Handle,
    pub(crate) devices: Vec<usize>,
    pub(crate) count: u32,
    /// The host may use its events, too.
    pub(crate) host_visible: bool,
    pub(crate) timestamps: bool,
    /// The indices taken by live events.
    pub(crate) used: BTreeSet<u32>,
}

pub(crate) struct Event {
    pub(crate) pool: Handle,
    pub(crate) index: u32,
    pub(crate) signal: Signal,
}

impl Driver {
    pub(crate) fn pool(&mut self, pool: PoolHandle) -> Outcome<&mut Pool> {
        if !self.pools.contains_key(&pool.number) {
            return Err(self.unknown("event pool", pool.number));
        }
        self.pools.get_mut(&pool.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    pub(crate) fn make_event(&mut self, pool: PoolHandle, index: u32) -> Outcome<EventHandle> {
        let own = self.pool(pool)?;
        if index >= own.count {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        if !own.used.insert(index) {
            let text = format!("an event is created at index {index} of pool {:#x}, which is taken", pool.number);
            self.violation(text);
            return Err(Refusal::INVALID_ARGUMENT);
        }
        let (handle, signal) = (self.engine.new_handle(), self.engine.signals.make());
        self.events.insert(handle, Event { pool: pool.number, index, signal });
        Ok(Object::new(handle))
    }

    /// Returns the signal of an event for a command.
    pub(crate) fn signal(&mut self, event: Handle) -> Outcome<Signal> {
        let found = self.events.get(&event).map(|event| event.signal);
        found.ok_or_else(|| {
            self.unknown("event", event);
            Refusal::INVALID_SYNCHRONIZATION_OBJECT
        })
    }

    /// Returns the signal of an event for the host. The event must be visible to it.
    pub(crate) fn host_signal(&mut self, event: EventHandle) -> Outcome<Signal> {
        let signal = self.signal(event.number)?;
        let pool = self.events.get(&event.number).and_then(|event| self.pools.get(&event.pool));
        if pool.is_some_and(|pool| !pool.host_visible) {
            self.violation(format!("the host uses event {:#x}, of a pool that is not visible to it", event.number));
        }
        Ok(signal)
    }

    /// Records a violation if a submitted command still uses an event that is about to be changed or destroyed.
    pub(crate) fn check_unused(&mut self, event: Handle, signal: Signal, about: &str) {
        let waits = self.engine.awaiting(signal).len();
        let signals = self.engine.setting(signal).len();
        let resets = self.engine.resetting(signal).len();
        for (count, what) in [(waits, "wait for"), (signals, "signal"), (resets, "reset")] {
            if count > 0 {
                self.violation(format!(
                    "event {event:#x} is {about} while {count} submitted commands have yet to {what} it"
                ));
            }
        }
    }

    /// Records a violation if an event is signalled again before its last signal may have been seen. Signalling it
    /// again is correct if a command resets it first.
    pub(crate) fn check_signalling(&mut self, event: Handle, signal: Signal) {
        if !self.engine.resetting(signal).is_empty() {
            return;
        }
        if !self.engine.setting(signal).is_empty() {
            self.violation(format!("event {event:#x} is signalled again before its last signal has happened"));
        }
        if self.engine.signals.is_set(signal) && !self.engine.awaiting(signal).is_empty() {
            self.violation(format!("event {event:#x} is signalled again while submitted commands have yet to wait"));
        }
    }

    /// Destroys an event immediately.
    pub(crate) fn destroy_event(&mut self, handle: Handle) -> Outcome {
        let signal = self.signal(handle)?;
        self.check_unused(handle, signal, "destroyed");
        self.engine.signals.remove(signal);
        if let Some(event) = self.events.remove(&handle)
            && let Some(pool) = self.pools.get_mut(&event.pool)
        {
            pool.used.remove(&event.index);
        }
        Ok(())
    }

    /// Returns when the command that signalled an event ran, in ticks.
    pub(crate) fn timestamps(&mut self, event: EventHandle) -> Outcome<ze_kernel_timestamp_result_t> {
        let signal = self.signal(event.number)?;
        let pool = self.events.get(&event.number).and_then(|event| self.pools.get(&event.pool));
        if pool.is_some_and(|pool| !pool.timestamps) {
            self.violation(format!("event {:#x} is queried for timestamps, which its pool lacks", event.number));
            return Err(Refusal::INVALID_ARGUMENT);
        }
        let times = self.engine.signals.times(signal).ok_or(Refusal::NOT_READY)?;
        let Times { began, ended } = times;
        let both = ze_kernel_timestamp_data_t { kernelStart: ticks(began), kernelEnd: ticks(ended) };
        Ok(ze_kernel_timestamp_result_t { global: both, context: both })
    }

    /// Returns the conditions for waiting for events.
    pub(crate) fn conditions(&mut self, events: &[Handle]) -> Outcome<Vec<Condition>> {
        events.iter().map(|event| Ok(Condition::Set(self.signal(*event)?))).collect()
    }
}
