//! What a simulated driver adds to the engine.

use crate::device_memory::GRANULARITY;
use crate::engine::Engine;
use crate::error::{Error, Fault};
use crate::lane::{Position, Times};
use crate::session::Lock;

/// A result of the API other than success.
pub trait Code: Copy + Send + From<Error> + 'static {
    /// The result of a call that a test makes fail without naming a code, and of a call that panics.
    const UNKNOWN: Self;
    /// The result of every call in a forked child of the process that started the driver.
    const FORKED: Self;

    /// Parses a code as environment variables spell it.
    fn parse(text: &str) -> Option<Self>;

    /// Formats an outcome for the call log: the number and the name.
    fn describe(outcome: Result<(), Self>) -> String;
}

/// The state of a simulated driver: an engine, and what is specific to its API.
pub trait Face: Sized + Send + 'static {
    /// What its calls return.
    type Code: Code;
    /// What it stores with each lane: which of its objects the lane belongs to, and other state of its own.
    type Lane: Send;
    /// What it wants to be notified of when an operation is over.
    type Mark: Send;

    /// The prefix of its environment variables, such as `CUDA_SIM_`.
    const PREFIX: &'static str;

    /// The unit of sizes of virtual memory and its mappings.
    const PAGE: u64 = GRANULARITY;

    /// Returns the lock around this process's driver.
    fn lock() -> &'static Lock<Self>;

    /// Returns the engine.
    fn engine(&self) -> &Engine<Self>;

    /// Returns the engine, for changes.
    fn engine_mut(&mut self) -> &mut Engine<Self>;

    /// Whether kernels of a device may touch the memory of another. Never called with the same device twice.
    fn may_reach(&self, device: usize, other: usize) -> bool;

    /// Converts virtual nanoseconds to the value that timestamp work writes.
    fn timestamp(&self, clock: u64) -> u64 {
        clock
    }

    /// Called when an operation with a mark has happened, just before the lane counts it as over.
    fn reached(&mut self, at: Position, mark: Self::Mark, times: Times);

    /// Called when an operation failed; the failure is already among the violations. Its mark is not reached, and its
    /// signal is not set. The lane continues unless this function drops its work.
    fn failed(&mut self, at: Position, fault: &Fault);

    /// Called just before a call fails because a test requested it.
    fn injected(&mut self, code: Self::Code) {
        let _ = code;
    }
}
