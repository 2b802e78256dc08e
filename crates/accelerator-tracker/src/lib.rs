#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod file;
mod grouped;
pub mod history;
#[cfg(feature = "tracing")]
mod layer;
pub mod limits;
#[cfg(feature = "metrics")]
pub mod live;
pub mod perfetto;
mod pickle;
pub mod picture;
#[cfg(feature = "plots")]
pub mod plot;
pub mod report;
pub mod snapshot;
pub mod tracker;

pub use file::{
    FileError, TemporaryName, excerpt, is_standard_output, remove_temporary_files, temporary_file, write_whole,
};
pub use grouped::grouped;
#[cfg(feature = "tracing")]
pub use layer::TrackerLayer;
pub use limits::Limits;
pub use pickle::{PickleError, PickleFault};
pub use tracker::MemoryTracker;
