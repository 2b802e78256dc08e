//! Replays a trace on a device.

mod plain;
mod replayer;

pub use plain::PlainOutput;
pub use replayer::{Outcome, ReplayError, Replayer, Setup};
