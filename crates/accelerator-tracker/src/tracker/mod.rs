//! Tracks a device's memory after each operator of a program, like PyTorch's `MemoryTracker`.

mod error;
mod files;
mod line_reader;
mod lines;
mod monitor;
mod python_float;
mod pytorch;
mod recording;
mod scope;
mod source;
mod stats;
mod summary;
#[cfg(feature = "plots")]
mod traces;

pub use error::TrackerError;
pub use monitor::{Feed, MemoryTracker};
#[cfg(feature = "tracing")]
pub(crate) use scope::{Opener, close, open};
pub use scope::{Scope, current_scope, scope, scope_absolute};
pub use stats::{FORWARD_BACKWARD_BOUNDARY, FORWARD_START, Marker, MemoryUse, OperatorStats, TrackerStats};
pub use summary::Summary;

/// The number of bytes in PyTorch's "MB".
const BYTES_PER_MIB: f64 = 1_048_576.0;
