use accelerator_core::Backend;

use crate::calls::Calls;

/// What a test or a replay does to a driver from outside.
pub trait Controls: Backend {
    /// The trace address that placements are counted from.
    const BASE: u64;

    /// Holds the stream: events recorded on it from now on are not complete before the release, or before something
    /// waits for them on the host.
    fn hold(&self, stream: &Self::Stream);

    /// Releases the stream and completes its events; nothing if it is not held.
    fn release(&self, stream: &Self::Stream);

    /// Waits until what was given to streams that are not held is done, so that what comes next finds the same on a
    /// device that runs by itself as on one that runs at once.
    fn settle(&self);

    /// Changes how many bytes there are to hand out; the device's properties stay.
    fn set_capacity(&self, capacity: u64);

    /// Makes the next `count` allocations fail for lack of memory.
    fn fail_allocs(&self, count: u64);

    /// The driver calls made so far.
    fn calls(&self) -> &Calls;
}
