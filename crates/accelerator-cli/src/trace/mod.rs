//! Allocation traces: the contents of a line, and sources of lines. `TRACE_FORMAT.md` describes the format.

mod bundled;
mod held;
mod op;
mod source;
mod unpack;

pub use bundled::{BUNDLED, Bundled};
pub use op::{Op, ParseError, parse_line};
pub use source::{Line, Source, SourceError};
