//! Allocation traces: the contents of a line, and sources of lines. `TRACE_FORMAT.md` describes the format.

mod bundled;
mod capture_op;
mod held;
mod live;
mod op;
mod pool_op;
mod source;
mod unpack;
mod words;

pub use bundled::{BUNDLED, Bundled};
pub use capture_op::CaptureOp;
pub use live::live_at_peak;
pub use op::{Op, parse_line};
pub use pool_op::{PoolKeep, PoolName, PoolOp, PoolOption};
pub use source::{Line, Source, SourceError};
pub use words::ParseError;
