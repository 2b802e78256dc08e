//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use accelerator_core::printable;

/// Prints a message for the user. Ignores errors: if standard error is closed or full, there is nowhere to report them.
pub(crate) fn tell(what: impl Display) {
    let _ = writeln!(io::stderr(), "accel: {what}");
}

/// Prints a warning about something that differs from what was recorded or requested.
pub(crate) fn warn(warning: &str) {
    tell(format_args!("warning: {warning}"));
}

/// Escapes characters that control a terminal in multi-line text.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
