//! What is said on standard error, beside the output.

use std::fmt::Display;
use std::io::{self, Write};

use accelerator_core::printable;

/// Says something to whoever started the program. Where standard error is closed or full there is nobody to tell.
pub fn tell(what: impl Display) {
    let _ = writeln!(io::stderr(), "accel: {what}");
}

/// Says what is not as it was recorded, or not as it was asked for.
pub(crate) fn warn(warning: &str) {
    tell(format_args!("warning: {warning}"));
}

/// A text of several lines as it may be shown.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
