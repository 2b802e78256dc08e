//! Address space and memory apart.

use std::num::NonZeroU64;

use crate::types::{DevicePtr, DriverResult};

/// Memory of the device without an address. Not `Copy`: it is destroyed once.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages {
    /// The driver's handle.
    pub handle: u64,
    /// Bytes.
    pub len: NonZeroU64,
}

/// Address space and memory apart, so that memory comes and goes at addresses that stay.
///
/// All lengths, and all distances from the start of a reservation, are multiples of the
/// [`granularity`](Self::granularity).
///
/// # Safety
/// *For backend authors.* The core hands out what is mapped to safe code: reservations overlap nothing that is live, and
/// mapped memory is valid for all work of the device until it is unmapped.
#[allow(unsafe_code)] // the contract above is what makes the trait unsafe to implement
pub unsafe trait VirtualMemory<P: DevicePtr>: Send + Sync {
    /// What lengths are multiples of, in bytes; itself a multiple of 512. CUDA: `cuMemGetAllocationGranularity`.
    fn granularity(&self) -> NonZeroU64;

    /// Whether the same memory may be mapped at several addresses at once, where work at one of them that comes behind other work on
    /// the same stream sees what that did at another. CUDA: virtual aliasing.
    ///
    /// The core gives bytes out at one address while earlier work of the same stream still uses them at another, and
    /// the program may use them on any stream at once. So a backend that [serializes
    /// conflicts](crate::Backend::serializes_conflicts) compares what lies behind addresses.
    fn maps_twice(&self) -> bool;

    /// Takes `len` bytes of address space, without memory. CUDA: `cuMemAddressReserve`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) where there is no address space left.
    fn reserve(&self, len: NonZeroU64) -> DriverResult<P>;

    /// Gives address space back. CUDA: `cuMemAddressFree`.
    ///
    /// # Safety
    /// * `at` and `len` are those of one `reserve`, not released since, and nothing is mapped there.
    unsafe fn release(&self, at: P, len: NonZeroU64);

    /// Takes `len` bytes of memory, without an address. CUDA: `cuMemCreate`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) is normal, as for [`Backend::alloc`](crate::Backend::alloc).
    fn create(&self, len: NonZeroU64) -> DriverResult<Pages>;

    /// Gives memory back. CUDA: `cuMemRelease`.
    ///
    /// # Safety
    /// * `pages` is of one `create` of this device, and mapped nowhere.
    unsafe fn destroy(&self, pages: Pages);

    /// Maps the memory at this address, for reading and writing. CUDA: `cuMemMap` and `cuMemSetAccess`.
    ///
    /// # Errors
    /// What the driver says; nothing is mapped then.
    ///
    /// # Safety
    /// * The range lies in one reservation, and nothing is mapped in it.
    unsafe fn map(&self, at: P, pages: &Pages) -> DriverResult<()>;

    /// Takes a mapping away. CUDA: `cuMemUnmap`, which does not always wait for work.
    ///
    /// # Errors
    /// What the driver says; it is still mapped then.
    ///
    /// # Safety
    /// * The range is one whole mapping: not all drivers take several at once.
    /// * All work that uses it is over, and none is submitted afterwards.
    unsafe fn unmap(&self, at: P, len: NonZeroU64) -> DriverResult<()>;
}
