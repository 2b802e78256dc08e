use std::num::NonZeroU64;
use std::sync::Mutex;

use crate::sync::lock;
use crate::types::DriverResult;

/// Mappings that failed half-way and that the driver has refused to undo. Their addresses count as free, so they are
/// undone before these are used again.
///
/// ```
/// use accelerator_core::backend_kit::FailedMappings;
/// use accelerator_core::{DriverError, DriverErrorKind};
/// use std::num::NonZeroU64;
///
/// let (left, page) = (FailedMappings::default(), NonZeroU64::new(4096).unwrap());
/// left.add(4096, page);
/// let refused = DriverError::new(DriverErrorKind::Other, "unmap", 22, "EINVAL");
/// assert!(left.undo(8192, page, |_, _| Err(refused)).is_ok(), "it is not in this range");
/// assert!(left.undo(4096, page, |_, _| Err(refused)).is_err());
/// let mut undone = Vec::new();
/// left.undo(4096, page, |start, len| Ok(undone.push((start, len)))).unwrap();
/// left.undo(4096, page, |start, len| Ok(undone.push((start, len)))).unwrap();
/// assert_eq!(undone, [(4096, page)]);
/// ```
#[derive(Debug, Default)]
pub struct FailedMappings(Mutex<Vec<(u64, NonZeroU64)>>);

impl FailedMappings {
    /// Notes a mapping of so many bytes that the driver has refused to undo.
    pub fn add(&self, start: u64, len: NonZeroU64) {
        lock(&self.0).push((start, len));
    }

    /// Undoes those that are in a range of addresses, which nothing uses meanwhile. `unmap` gets the start and the
    /// length of each.
    ///
    /// # Errors
    /// The first error. That mapping stays, and so do those after it.
    pub fn undo(
        &self,
        start: u64,
        len: NonZeroU64,
        mut unmap: impl FnMut(u64, NonZeroU64) -> DriverResult<()>,
    ) -> DriverResult<()> {
        let end = |start: u64, len: NonZeroU64| start.saturating_add(len.get());
        let is_inside = |(at, of): &(u64, NonZeroU64)| *at < end(start, len) && start < end(*at, *of);
        loop {
            let next = lock(&self.0).iter().copied().find(is_inside);
            let Some((at, len)) = next else { return Ok(()) };
            unmap(at, len)?;
            lock(&self.0).retain(|other| *other != (at, len));
        }
    }
}
