use std::num::NonZeroU64;

/// Converts a length for a driver that takes a `usize`. A length beyond the address space becomes the maximum, which
/// the driver refuses.
///
/// ```
/// use std::num::NonZeroU64;
///
/// use accelerator_core::backend_kit::byte_count;
///
/// assert_eq!(byte_count(NonZeroU64::new(4096).unwrap()), 4096);
/// ```
pub fn byte_count(len: NonZeroU64) -> usize {
    usize::try_from(len.get()).unwrap_or(usize::MAX)
}
