//! Memory that other processes map.
//!
//! Segments are exported as files. An IPC handle would contain the number of an open file of this process, which the
//! driver must be allowed to fetch from it.
#![allow(unsafe_code)] // calls the driver

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Exported, Interprocess, Pages};
use level_zero_sys as sys;

use crate::answer::call;
use crate::devices::FILE;
use crate::memory::XpuPtr;
use crate::xpu::Xpu;

// SAFETY: The driver keeps memory as long as a file of it is open or it is mapped, even if the process that made it
// ends.
unsafe impl Interprocess<XpuPtr> for Xpu {
    unsafe fn export(&self, ptr: XpuPtr, _len: NonZeroU64) -> DriverResult<Exported> {
        const CALL: &str = "zeMemGetAllocProperties";
        let mut file = sys::ze_external_memory_export_fd_t { flags: FILE, fd: NO_FILE, ..Default::default() };
        let chain = (&raw mut file).cast();
        let mut properties = sys::ze_memory_allocation_properties_t { pNext: chain, ..Default::default() };
        let (device, none) = (&self.device, std::ptr::null_mut());
        let (context, at) = (device.context(), ptr.native());
        // SAFETY: The `stype` of each structure is set, and the call fills them.
        unsafe { call!(device, zeMemGetAllocProperties(context, at, &mut properties, none)) }?;
        if file.fd == NO_FILE {
            return Err(DriverError::refused(DriverErrorKind::Unsupported, CALL, "the driver returned no file"));
        }
        // SAFETY: The driver keeps its file open as long as the memory, which the caller promises is still there.
        let file = unsafe { BorrowedFd::borrow_raw(file.fd) }.try_clone_to_owned();
        let file = file.map_err(|_| DriverError::refused(DriverErrorKind::Other, CALL, "too many open files"))?;
        Ok(Exported { bytes: Vec::new(), file: Some(File::from(file)) })
    }

    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<XpuPtr> {
        const CALL: &str = "zeMemAllocDevice";
        let refused = |why| DriverError::refused(DriverErrorKind::InvalidArgument, CALL, why);
        let file = exported.file.as_ref().ok_or(refused("not memory that another process exported"))?;
        let mut file = file.try_clone().map_err(|_| refused("too many open files"))?;
        if file.seek(SeekFrom::End(0)).is_ok_and(|size| size < len.get()) {
            return Err(refused("the exported memory is shorter"));
        }
        let import = sys::ze_external_memory_import_fd_t { flags: FILE, fd: file.as_raw_fd(), ..Default::default() };
        let chain = (&raw const import).cast();
        let at = self.allocate(&sys::ze_device_mem_alloc_desc_t { pNext: chain, ..Default::default() }, len)?;
        let _ = file.into_raw_fd(); // the driver's from now on
        Ok(XpuPtr::from_native(self.checked(CALL, at)?.as_ptr().cast()))
    }

    unsafe fn close(&self, ptr: XpuPtr, _len: NonZeroU64) {
        // SAFETY: The caller closes an import, once, and no work uses it.
        unsafe { self.free(ptr.native()) };
    }

    unsafe fn export_pages(&self, _pages: &Pages) -> DriverResult<Exported> {
        Err(NO_PAGES)
    }

    fn import_pages(&self, _exported: &Exported, _len: NonZeroU64) -> DriverResult<Pages> {
        Err(NO_PAGES)
    }
}

const NO_FILE: RawFd = -1;

const NO_PAGES: DriverError = DriverError::refused(
    DriverErrorKind::Unsupported,
    "zePhysicalMemGetProperties",
    "Intel GPUs share no memory of expandable segments or of policy:compact",
);
