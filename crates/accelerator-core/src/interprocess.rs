//! Memory that other processes can map.
#![allow(unsafe_code)] // the contract of the trait

use std::fs::File;
use std::num::NonZeroU64;

use crate::types::{DevicePtr, DriverResult};
use crate::virtual_memory::Pages;

/// What a driver needs to open memory in another process.
#[derive(Debug, Default)]
pub struct Exported {
    /// Bytes that are valid in any process. At most 256.
    pub bytes: Vec<u8>,
    /// An open file, of which the other process gets a descriptor.
    pub file: Option<File>,
}

/// Exports memory to other processes, and imports theirs.
///
/// The core exports only memory that stays allocated until every importing process has closed it or ended, and imports
/// it only on the same device of another process. So a driver need not detect any misuse of exported memory.
///
/// # Safety
/// *For backend authors.* The core hands out imported memory to safe code. So memory that is imported must be valid
/// until it is closed, even if the exporting process ends first.
pub unsafe trait Interprocess<P: DevicePtr>: Send + Sync {
    /// Exports memory that [`Backend::alloc`](crate::Backend::alloc) returned, for any number of imports. CUDA:
    /// `cuIpcGetMemHandle`. Level Zero: `ze_external_memory_export_fd_t`.
    ///
    /// # Errors
    /// [`Unsupported`](crate::DriverErrorKind::Unsupported) if the driver does not export it; otherwise its error.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one `alloc` of this backend that has not been given back.
    /// * Only work of this backend accesses the memory meanwhile, so that it can be moved to other pages.
    unsafe fn export(&self, ptr: P, len: NonZeroU64) -> DriverResult<Exported>;

    /// Opens memory that another process [exported](Self::export). CUDA: `cuIpcOpenMemHandle`. Level Zero:
    /// `ze_external_memory_import_fd_t`.
    ///
    /// # Errors
    /// The driver's error, also for anything that is not exported memory.
    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<P>;

    /// Closes imported memory. CUDA: `cuIpcCloseMemHandle`. Level Zero: `zeMemFree`.
    ///
    /// # Safety
    /// * `ptr` and `len` are those of one [`import`](Self::import) that has not been closed.
    /// * All work that uses the memory is over, and none is submitted afterwards.
    unsafe fn close(&self, ptr: P, len: NonZeroU64);

    /// Exports memory that [`VirtualMemory::create`](crate::VirtualMemory::create) returned, for any number of imports.
    /// CUDA: `cuMemExportToShareableHandle`.
    ///
    /// # Errors
    /// As for [`export`](Self::export).
    ///
    /// # Safety
    /// * The pages have not been [destroyed](crate::VirtualMemory::destroy).
    /// * Through what is returned, their bytes are accessed only as memory of an import, in order with all other work
    ///   that accesses them.
    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported>;

    /// Opens memory that another process [exported](Self::export_pages). It is mapped, and later destroyed, like memory
    /// of this process. CUDA: `cuMemImportFromShareableHandle`.
    ///
    /// # Errors
    /// The driver's error, also for anything that is not exported memory.
    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages>;
}
