//! Messages on standard error, besides the output.

use std::fmt::Display;
use std::io::{self, Write};

use accelerator_core::printable;

/// Prints a message for the user. If standard error is closed or full, nobody can be told.
pub fn tell(what: impl Display) {
    let _ = writeln!(io::stderr(), "accel: {what}");
}

/// Warns of something that is not as it was recorded or requested.
pub(crate) fn warn(warning: &str) {
    tell(format_args!("warning: {warning}"));
}

/// A text of several lines, with escapes where a terminal needs them.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
