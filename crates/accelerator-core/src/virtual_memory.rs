//! Virtual memory: address space and memory, managed separately.

use std::num::NonZeroU64;

use crate::types::{DevicePtr, DriverResult};

/// Device memory without an address. It is not `Copy`, since it is destroyed once.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pages {
    /// The driver's handle.
    pub handle: u64,
    /// The length in bytes.
    pub len: NonZeroU64,
}

impl Pages {
    /// Memory of this length, by its handle in the driver.
    pub const fn new(handle: u64, len: NonZeroU64) -> Self {
        Self { handle, len }
    }
}

/// Manages address space and memory separately, so that memory can come and go at addresses that stay.
///
/// All lengths, and all distances from the start of a reservation, are multiples of the
/// [`granularity`](Self::granularity).
///
/// # Safety
/// *For backend authors.* The core hands out mapped memory to safe code. So reservations must not overlap anything
/// live, and mapped memory must be valid for all work of the device until it is unmapped.
#[allow(unsafe_code)] // the contract above is what makes the trait unsafe to implement
pub unsafe trait VirtualMemory<P: DevicePtr>: Send + Sync {
    /// The number of bytes that all lengths are multiples of; itself a multiple of 512. CUDA:
    /// `cuMemGetAllocationGranularity`.
    fn granularity(&self) -> NonZeroU64;

    /// Whether the same memory may be mapped at several addresses at once, and work at one address sees what earlier
    /// work of the same stream wrote at another. CUDA: virtual aliasing.
    ///
    /// The core hands out bytes at one address while earlier work of the same stream still uses them at another, and
    /// the program may use them on any stream at once. So a backend that [serializes
    /// conflicts](crate::Backend::serializes_conflicts) compares the memory behind addresses.
    fn maps_twice(&self) -> bool;

    /// Reserves `len` bytes of address space, without memory. CUDA: `cuMemAddressReserve`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) if there is not enough address space.
    fn reserve(&self, len: NonZeroU64) -> DriverResult<P>;

    /// Releases address space. CUDA: `cuMemAddressFree`.
    ///
    /// # Safety
    /// * `at` and `len` are those of one `reserve` that has not been released, and nothing is mapped there.
    unsafe fn release(&self, at: P, len: NonZeroU64);

    /// Allocates `len` bytes of memory, without an address. CUDA: `cuMemCreate`.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::DriverErrorKind::OutOfMemory) is a normal result, as for
    /// [`Backend::alloc`](crate::Backend::alloc).
    fn create(&self, len: NonZeroU64) -> DriverResult<Pages>;

    /// Frees memory. CUDA: `cuMemRelease`.
    ///
    /// # Safety
    /// * `pages` comes from `create` of this device and is mapped nowhere.
    unsafe fn destroy(&self, pages: Pages);

    /// Maps the memory at this address for reading and writing. CUDA: `cuMemMap` and `cuMemSetAccess`.
    ///
    /// # Errors
    /// The error of the driver; nothing is mapped then.
    ///
    /// # Safety
    /// * The range lies in one reservation, and nothing is mapped in it.
    unsafe fn map(&self, at: P, pages: &Pages) -> DriverResult<()>;

    /// Removes a mapping. CUDA: `cuMemUnmap`, which does not always wait for work.
    ///
    /// # Errors
    /// The error of the driver; the memory is still mapped then.
    ///
    /// # Safety
    /// * The range is one whole mapping, since not all drivers accept several at once.
    /// * All work that uses the range is over, and none is submitted afterwards.
    unsafe fn unmap(&self, at: P, len: NonZeroU64) -> DriverResult<()>;
}
