//! Memory that other processes map.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Exported, Interprocess, Pages};

use crate::calls::call;
use crate::cuda::Cuda;
use crate::memory::{CudaPtr, Handle};
use crate::virtual_memory::FILE;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, which CUDA demands.
const LAZY_PEER_ACCESS: c_uint = 1;

// SAFETY: The driver keeps memory as long as any process has it open or mapped, even if the process that made it ends.
unsafe impl Interprocess<CudaPtr> for Cuda {
    unsafe fn export(&self, ptr: CudaPtr, _len: NonZeroU64) -> DriverResult<Exported> {
        let (mut handle, at) = (Handle([0; 64]), ptr.native());
        // SAFETY: The caller promises memory of `cuMemAlloc`. The call writes a handle.
        self.context.run_beside_captures(|| unsafe { call!(cuIpcGetMemHandle(&mut handle, at)) })?;
        Ok(Exported { bytes: handle.0.to_vec(), file: None })
    }

    fn import(&self, exported: &Exported, _len: NonZeroU64) -> DriverResult<CudaPtr> {
        let handle = Handle(exported.bytes[..].try_into().map_err(|_| not_exported("cuIpcOpenMemHandle"))?);
        let mut at = 0;
        self.context.run_beside_captures(|| {
            // SAFETY: The driver checks the handle. The call writes an address.
            unsafe { call!(cuIpcOpenMemHandle(&mut at, handle, LAZY_PEER_ACCESS)) }
        })?;
        Ok(CudaPtr::from_native(at))
    }

    unsafe fn close(&self, ptr: CudaPtr, _len: NonZeroU64) {
        // SAFETY: The caller closes an import, once, and no work uses it.
        self.context.give_back(|| unsafe { call!(cuIpcCloseMemHandle(ptr.native())) });
    }

    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported> {
        let call = "cuMemExportToShareableHandle";
        if self.pager.as_ref().is_none_or(|pager| !pager.makes_files()) {
            let why = "the device cannot export memory as file descriptors";
            return Err(DriverError::refused(DriverErrorKind::Unsupported, call, why));
        }
        let (mut descriptor, handle) = (-1, pages.handle);
        self.context.run_beside_captures(|| {
            // SAFETY: The caller promises that the pages exist. The call writes a descriptor, as which this kind of
            // handle is exported.
            unsafe { call!(cuMemExportToShareableHandle(&mut descriptor, handle, FILE, 0)) }
        })?;
        if descriptor < 0 {
            return Err(DriverError::refused(DriverErrorKind::Other, call, "the driver returned no descriptor"));
        }
        // SAFETY: The descriptor is new, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Exported { bytes: Vec::new(), file: Some(File::from(descriptor)) })
    }

    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages> {
        let file = exported.file.as_ref().ok_or_else(|| not_exported("cuMemImportFromShareableHandle"))?;
        let (mut pages, handle) = (0, ptr::without_provenance_mut::<c_void>(file.as_raw_fd() as usize));
        self.context.run_beside_captures(|| {
            // SAFETY: The driver checks the descriptor, which stays open meanwhile. The call writes a handle.
            unsafe { call!(cuMemImportFromShareableHandle(&mut pages, handle, FILE)) }
        })?;
        Ok(Pages::new(pages, len))
    }
}

fn not_exported(call: &'static str) -> DriverError {
    DriverError::refused(DriverErrorKind::InvalidArgument, call, "not memory that another process exported")
}
