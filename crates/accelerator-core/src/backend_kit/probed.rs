//! Looking for a driver.

use std::process;
use std::sync::OnceLock;

use crate::types::{DriverError, DriverErrorKind, DriverResult, Unavailable};

/// What a backend finds when it first looks for its driver, such as the loaded library and the devices.
///
/// The answer counts for the whole process, because loading a driver takes long and must not be repeated after a
/// failure. In a forked process a driver that was found does not work, which is an error.
///
/// ```
/// use accelerator_core::Unavailable;
/// use accelerator_core::backend_kit::Probed;
///
/// static DRIVER: Probed<Vec<&str>> = Probed::new("the driver does not work after a fork");
///
/// fn look() -> Result<Vec<&'static str>, Unavailable> {
///     Ok(vec!["a device"])
/// }
///
/// assert_eq!(DRIVER.get(look).unwrap().len(), 1); // in `probe`
/// assert_eq!(DRIVER.opened("init", look).unwrap()[0], "a device"); // in `open`
/// ```
#[derive(Debug)]
pub struct Probed<T> {
    /// The process that looked, and what it found.
    found: OnceLock<(u32, Result<T, Unavailable>)>,
    forked: &'static str,
}

impl<T> Probed<T> {
    /// Makes an empty place for the answer. `forked` tells people what to do about a forked process.
    pub const fn new(forked: &'static str) -> Self {
        Self { found: OnceLock::new(), forked }
    }

    /// Returns what was found. Only the first call looks.
    ///
    /// # Errors
    /// Why nothing was found; the text about a forked process, if another one found something.
    pub fn get(&self, look: impl FnOnce() -> Result<T, Unavailable>) -> Result<&T, Unavailable> {
        let process = process::id();
        match self.found.get_or_init(|| (process, look())) {
            (found_by, Ok(_)) if *found_by != process => Err(Unavailable::new(self.forked)),
            (_, found) => found.as_ref().map_err(Clone::clone),
        }
    }

    /// Like [`get`](Self::get), with the error for opening a device without probing first.
    ///
    /// # Errors
    /// [`Unsupported`](DriverErrorKind::Unsupported) from the driver function `call` if nothing was found, or in a
    /// forked process.
    pub fn opened(&self, call: &'static str, look: impl FnOnce() -> Result<T, Unavailable>) -> DriverResult<&T> {
        self.get(look).map_err(|why| {
            let name = if why.reason == self.forked { self.forked } else { "there is no device to open" };
            DriverError::refused(DriverErrorKind::Unsupported, call, name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORKED: &str = "this process was forked";

    fn none(reason: &str) -> Result<u8, Unavailable> {
        Err(Unavailable::new(reason))
    }

    #[test]
    fn the_first_answer_counts_whatever_it_is() {
        let there = Probed::new(FORKED);
        assert_eq!((there.get(|| Ok(1)), there.get(|| none("gone"))), (Ok(&1), Ok(&1)));
        assert_eq!(there.opened("init", || none("gone")), Ok(&1));
        let missing = Probed::new(FORKED);
        assert_eq!(missing.get(|| none("no driver")).unwrap_err().reason, "no driver");
        assert_eq!(missing.get(|| Ok(1)).unwrap_err().reason, "no driver");
        let error = missing.opened("init", || Ok(1)).unwrap_err();
        assert_eq!((error.kind, error.call), (DriverErrorKind::Unsupported, "init"));
        assert_eq!(error.name, "there is no device to open");
    }

    #[test]
    fn a_driver_that_another_process_found_is_refused_but_a_missing_one_is_still_missing() {
        let found_by_another = |found| {
            let probed = Probed::new(FORKED);
            probed.found.set((process::id().wrapping_add(1), found)).unwrap();
            probed
        };
        let there = found_by_another(Ok(1));
        assert_eq!(there.get(|| Ok(2)).unwrap_err().reason, FORKED);
        assert_eq!(there.opened("init", || Ok(2)).unwrap_err().name, FORKED);
        assert_eq!(found_by_another(none("no driver")).get(|| Ok(2)).unwrap_err().reason, "no driver");
    }
}
