use crate::types::DriverResult;

/// Makes a call that releases something, and makes it again if it fails, since the resource would otherwise be leaked.
/// Returns whether one of the calls succeeded. A call that fails must release nothing.
///
/// ```
/// use accelerator_core::backend_kit::try_twice;
/// use accelerator_core::{DriverError, DriverErrorKind};
///
/// let busy = DriverError::new(DriverErrorKind::Other, "free", 16, "EBUSY");
/// let mut answers = [Err(busy), Ok(())].into_iter();
/// assert!(try_twice(|| answers.next().unwrap()));
/// assert!(!try_twice(|| Err(busy)));
/// ```
pub fn try_twice(mut call: impl FnMut() -> DriverResult<()>) -> bool {
    call().or_else(|_| call()).is_ok()
}
