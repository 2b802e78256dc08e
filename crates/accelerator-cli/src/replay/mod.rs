//! Replays a trace on a device.

mod captures;
mod checkpoints;
mod looped;
mod outcome;
mod pauses;
mod plain;
mod pools;
mod replayer;
mod setup;
mod summary;

pub(crate) use looped::MEMORY_OF_STEP;
pub use looped::{Failed, Program};
pub use outcome::{Outcome, Place, ReplayError, Restored, Segments, SourceCalls};
pub use plain::PlainOutput;
pub(crate) use replayer::MEMORY_OF_ALLOCATION;
pub use replayer::{Expandable, Replayer};
pub use setup::Setup;
pub use summary::Summary;
pub(crate) use summary::percent;
