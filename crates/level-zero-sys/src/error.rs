//! Errors that can occur before a function of Level Zero is called.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// The loader could not be opened. The message contains every name that was tried, with the reason for its failure.
pub struct LoadError {
    pub(crate) tried: Vec<(OsString, libloading::Error)>,
}

impl LoadError {
    /// Returns the names or paths that were tried, in order, each with the system's reason for the failure.
    pub fn tried(&self) -> impl Iterator<Item = (&OsStr, &(dyn Error + 'static))> {
        // libloading's own message only says which call failed.
        self.tried.iter().map(|(name, error)| (name.as_os_str(), error.source().unwrap_or(error)))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the Level Zero loader could not be opened")?;
        for (index, (name, reason)) in self.tried().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            let (name, reason) = (name.display().to_string(), reason.to_string());
            // Most systems include the name in the reason.
            match reason.contains(&name) {
                true => f.write_str(&reason)?,
                false => write!(f, "{name}: {reason}")?,
            }
        }
        Ok(())
    }
}

/// Prints the message, since Rust prints the `Debug` form of an error that `main` returns.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for LoadError {}

/// The loader is too old to have this function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MissingFunction {
    /// The function's name, such as `zeInitDrivers`.
    pub name: &'static str,
}

impl fmt::Display for MissingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Level Zero loader lacks {}: install a newer loader", self.name)
    }
}

/// Prints the message, as for [`LoadError`].
impl fmt::Debug for MissingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for MissingFunction {}
