//! Replays a trace on a device.

mod plain;
mod replayer;
mod setup;
mod summary;

pub use plain::PlainOutput;
pub(crate) use replayer::MEMORY_OF_ALLOCATION;
pub use replayer::{Expandable, Outcome, ReplayError, Replayer};
pub use setup::Setup;
pub use summary::Summary;
pub(crate) use summary::percent;
