//! Allocation traces: what stands in a line, and where lines come from. The format is described in TRACE_FORMAT.

mod bundled;
mod held;
mod op;
mod source;
mod unpack;

pub use bundled::{BUNDLED, Bundled};
pub use op::{Op, ParseError, parse_line};
pub use source::{Line, Source, SourceError};
