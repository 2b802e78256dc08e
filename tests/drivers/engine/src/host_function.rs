//! Functions of the program that a queue calls in stream order.

use std::ffi::c_void;
use std::thread::Builder;

use crate::face::Face;
use crate::lane::{Position, Times};
use crate::session::Session;
use crate::thread;

/// A function and its argument.
#[derive(Clone, Copy)]
pub struct HostFunction {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub data: *mut c_void,
}

// SAFETY: an API with such functions allows them to run on any thread with their argument.
unsafe impl Send for HostFunction {}

impl<F: Face> Session<F> {
    /// Runs a host function on one of the driver's own threads, without the lock. It may run for any length of time.
    pub(crate) fn start_host_function(&mut self, at: Position, host: HostFunction, times: Times) {
        let started = Builder::new().spawn(move || {
            let HostFunction { function, data } = { host };
            thread::enter_host_function();
            // SAFETY: the caller that submitted the function guarantees that it may be called with this argument.
            unsafe { function(data) };
            Self::new().end_host_function(at, times);
        });
        if started.is_err() {
            let text = "no thread could be started for a host function";
            self.engine_mut().violations.push(text.to_owned());
            self.end_host_function(at, times);
        }
    }

    fn end_host_function(&mut self, at: Position, times: Times) {
        let lane = self.engine_mut().lanes.get_mut(&at.lane);
        // The lane's work may have been dropped meanwhile.
        let operation = lane.and_then(|lane| {
            lane.running = false;
            let is_first = lane.queue.front().is_some_and(|(number, _)| *number == at.number);
            if is_first { lane.queue.pop_front() } else { None }
        });
        self.finish(at, operation.map(|(_, operation)| operation), times);
        self.tell_others();
    }
}
