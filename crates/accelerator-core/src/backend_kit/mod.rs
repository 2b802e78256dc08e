//! Parts that are already written, for authors of backends.
//!
//! Most drivers need the same code around their calls. Each type here is one such part, and none depends on another, so
//! a backend takes those that it needs. Nothing here calls a driver or panics.
//!
//! | a backend that | uses |
//! |---|---|
//! | has a lock, which a panic elsewhere must not break | [`lock`], [`get_mut`], [`wait_while`] |
//! | looks for its driver once per process | [`Probed`] |
//! | lets its users choose and order devices | [`DeviceList`] |
//! | reads variables of the environment | [`read_capacity`], [`read_variable`] |
//! | counts its memory, or limits it | [`Accounting`] |
//! | names memory by handles instead of addresses | [`HandlePtr`], [`SegmentTable`] |
//! | passes lengths to a driver as `usize` | [`byte_count`] |
//! | must know which work of a stream is done | [`Submissions`] |
//! | reuses events, queries or memory for copies | [`Pool`], [`Pooled`] |
//! | has graphs, but its driver captures no streams | [`Captures`], [`EventCapture`], [`GraphNode`] |
//! | waits for all streams before it frees memory | [`Streams`] |
//! | measures time with a counter that wraps around | [`DeviceClock`], [`Timestamp`] |
//! | measures time on the host | [`nanoseconds_between`] |
//! | can lose its device, or does not work after a fork | [`Health`] |
//! | releases something with a call that may fail | [`try_twice`] |
//! | maps memory with several calls | [`FailedMappings`] |

mod accounting;
mod captures;
mod clock;
mod devices;
mod failed_mappings;
mod handle_ptr;
mod health;
mod length;
mod pool;
mod probed;
mod release;
mod segments;
mod streams;
mod submissions;
mod variable;

pub use self::accounting::Accounting;
pub use self::captures::{Captures, EventCapture, GraphNode};
pub use self::clock::{DeviceClock, Timestamp, nanoseconds_between};
pub use self::devices::DeviceList;
pub use self::failed_mappings::FailedMappings;
pub use self::handle_ptr::HandlePtr;
pub use self::health::Health;
pub use self::length::byte_count;
pub use self::pool::{Pool, Pooled};
pub use self::probed::Probed;
pub use self::release::try_twice;
pub use self::segments::SegmentTable;
pub use self::streams::Streams;
pub use self::submissions::Submissions;
pub use self::variable::{read_capacity, read_variable};
pub use crate::sync::{get_mut, lock, wait_while};
