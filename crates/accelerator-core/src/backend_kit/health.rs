//! Devices that are lost.

use std::process;
use std::sync::OnceLock;

use crate::types::{DriverError, DriverErrorKind, DriverResult};

/// Whether a device accepts calls. It does so until a call reports that the device is lost, and only in the process
/// that opened it: most drivers do not work after a fork.
///
/// ```
/// use accelerator_core::backend_kit::Health;
/// use accelerator_core::{DriverError, DriverErrorKind};
///
/// let health = Health::new("init", "the driver does not work after a fork: use it only after the fork");
/// assert_eq!(health.run(|| Ok(7)), Ok(7));
///
/// let lost = DriverError::new(DriverErrorKind::DeviceLost, "launch", 19, "ENODEV");
/// assert_eq!(health.run(|| Err::<(), _>(lost)), Err(lost));
/// // The driver is not called any more.
/// assert_eq!(health.run(|| Ok(7)), Err(lost));
/// ```
#[derive(Debug)]
pub struct Health {
    process: u32,
    /// The error of all calls in another process.
    forked: DriverError,
    /// The error that lost the device.
    lost: OnceLock<DriverError>,
}

impl Health {
    /// Makes the health of a device that is opened in this process. In a forked one, all calls fail with
    /// [`DeviceLost`](DriverErrorKind::DeviceLost), by the driver function `call` and with the text `forked`.
    pub fn new(call: &'static str, forked: &'static str) -> Self {
        let forked = DriverError::refused(DriverErrorKind::DeviceLost, call, forked);
        Self { process: process::id(), forked, lost: OnceLock::new() }
    }

    /// Checks that the device accepts calls. Check before taking a lock: in a forked process, the thread that holds it
    /// may not exist.
    ///
    /// # Errors
    /// The error that lost the device; the error of a forked process.
    #[inline]
    pub fn check(&self) -> DriverResult<()> {
        match self.lost.get() {
            Some(error) => Err(*error),
            None if self.is_forked() => Err(self.forked),
            None => Ok(()),
        }
    }

    /// Makes calls that concern only this device. If they report that it is lost, the error is kept.
    ///
    /// # Errors
    /// Errors of `calls`; of [`check`](Self::check), without making the calls.
    pub fn run<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.check()?;
        calls().inspect_err(|error| {
            if error.kind == DriverErrorKind::DeviceLost {
                let _ = self.lost.set(*error); // only the first error is kept
            }
        })
    }

    /// Whether the device is lost: it does no more work.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Whether this process was forked from the one that opened the device. Nothing of the driver may be released then.
    #[inline]
    pub fn is_forked(&self) -> bool {
        process::id() != self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORKED: &str = "this process was forked";

    fn error(kind: DriverErrorKind, code: i64) -> DriverError {
        DriverError::new(kind, "submit", code, "failed")
    }

    #[test]
    fn only_a_loss_is_kept_and_only_the_first() {
        let health = Health::new("init", FORKED);
        let (other, lost) = (error(DriverErrorKind::Other, 1), error(DriverErrorKind::DeviceLost, 2));
        assert_eq!(health.run(|| Err::<(), _>(other)), Err(other));
        assert_eq!((health.check(), health.is_lost()), (Ok(()), false));
        // A call that was made before another one lost the device.
        let late = error(DriverErrorKind::DeviceLost, 3);
        let outer = health.run(|| {
            assert_eq!(health.run(|| Err::<(), _>(lost)), Err(lost));
            Err::<(), _>(late)
        });
        assert_eq!((outer, health.check(), health.is_lost()), (Err(late), Err(lost), true));
        let mut called = false;
        let refused = health.run(|| {
            called = true;
            Ok(())
        });
        assert_eq!((refused, called), (Err(lost), false));
    }

    #[test]
    fn another_process_makes_no_calls() {
        let health = Health { process: process::id().wrapping_add(1), ..Health::new("init", FORKED) };
        let error = DriverError::refused(DriverErrorKind::DeviceLost, "init", FORKED);
        assert_eq!((health.check(), health.run(|| Ok(()))), (Err(error), Err(error)));
        assert!(health.is_forked() && !health.is_lost());
        assert!(!Health::new("init", FORKED).is_forked());
    }
}
