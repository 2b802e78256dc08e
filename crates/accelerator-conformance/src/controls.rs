use accelerator_core::{Backend, DriverResult};

use crate::calls::Calls;

/// How a test or a replay steers a driver from outside.
pub trait Controls: Backend {
    /// The trace address that placements are relative to.
    const BASE: u64;

    /// Whether memory has contents, which can be copied.
    const HAS_BYTES: bool = true;

    /// Holds the stream: events recorded on it from now on do not complete until it is released or the host waits for
    /// them.
    fn hold(&self, stream: &Self::Stream);

    /// Releases the stream and completes its events. Does nothing if it is not held.
    fn release(&self, stream: &Self::Stream);

    /// Waits until streams that are not held have done their work, so that what follows sees the same state on an
    /// asynchronous device as on one that runs everything at once.
    fn settle(&self);

    /// Submits work without effect. If the stream captures, it becomes part of the graph.
    ///
    /// # Errors
    /// Errors of the driver.
    fn launch(&self, stream: &Self::Stream) -> DriverResult<()>;

    /// Changes how many bytes can be allocated. The device's properties stay the same.
    fn set_capacity(&self, capacity: u64);

    /// Makes the next `count` allocations fail for lack of memory.
    fn fail_allocs(&self, count: u64);

    /// The driver calls so far.
    fn calls(&self) -> &Calls;
}
