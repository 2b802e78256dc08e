//! What a simulated driver adds to the engine.

use crate::device_memory::GRANULARITY;
use crate::engine::Engine;
use crate::error::{Error, Fault};
use crate::lane::{Position, Times};
use crate::session::Lock;

/// A result of the API other than success.
pub trait Code: Copy + Send + From<Error> + 'static {
    /// What a call gives that a test makes fail without saying how, and one that panics.
    const UNKNOWN: Self;
    /// What every call gives in a forked child of the process that started the driver.
    const FORKED: Self;

    /// As the environment writes it.
    fn parse(text: &str) -> Option<Self>;

    /// An outcome as the log of calls writes it: the number and the name.
    fn describe(outcome: Result<(), Self>) -> String;
}

/// The state of a simulated driver: an engine, and what only this API has.
pub trait Face: Sized + Send + 'static {
    /// What its calls return.
    type Code: Code;
    /// What it keeps with each lane: which of its objects the lane belongs to, and what only it knows of it.
    type Lane: Send;
    /// What it wants to be reminded of when an operation is over.
    type Mark: Send;

    /// What the names of its environment variables begin with, such as `CUDA_SIM_`.
    const PREFIX: &'static str;

    /// What sizes of virtual memory and its mappings are multiples of.
    const PAGE: u64 = GRANULARITY;

    /// The one of this process.
    fn lock() -> &'static Lock<Self>;

    /// The engine in it.
    fn engine(&self) -> &Engine<Self>;

    /// The engine in it, to change.
    fn engine_mut(&mut self) -> &mut Engine<Self>;

    /// Whether kernels of a device may touch the memory of another; nobody asks about one and the same.
    fn may_reach(&self, device: usize, other: usize) -> bool;

    /// What work writes that writes the time, from virtual nanoseconds.
    fn timestamp(&self, clock: u64) -> u64 {
        clock
    }

    /// An operation that carries a mark has happened. The lane counts it as over right after.
    fn reached(&mut self, at: Position, mark: Self::Mark, times: Times);

    /// An operation went wrong, which is among the violations already. Its mark is not reached, and its
    /// signal is not set. The lane goes on, unless its work is dropped here.
    fn failed(&mut self, at: Position, fault: &Fault);

    /// A call is about to fail because a test asked for that.
    fn injected(&mut self, code: Self::Code) {
        let _ = code;
    }
}
