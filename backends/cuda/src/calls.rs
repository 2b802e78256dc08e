//! The driver calls that the backend makes, under CUDA's names.
//!
//! Each is looked up at its first use, with a type that returns a number. The bindings' own functions panic if the
//! driver lacks one. They also return an enum, so a code that the enum lacks would be undefined behaviour.
#![allow(unsafe_code)] // functions of the driver
#![allow(non_snake_case, reason = "CUDA's names")]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems share no memory with other processes"))]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUuuid,
};

use crate::answer::Answer;
use crate::library;
use crate::marks::EdgeData;
use crate::memory::Handle;
use crate::virtual_memory::{Access, Properties};

macro_rules! calls {
    ($($name:ident $symbol:literal ($($argument:ident: $kind:ty),*);)*) => {
        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            /// # Safety
            /// As CUDA documents.
            pub(crate) unsafe fn $name($($argument: $kind),*) -> DriverResult<Answer> {
                type Function = unsafe extern "C" fn($($kind),*) -> Answer;
                static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
                // SAFETY: The table contains CUDA's types.
                let found = *FUNCTION.get_or_init(|| unsafe { library::function($symbol) });
                match found {
                    // SAFETY: The caller meets the conditions that CUDA documents.
                    Some(function) => Ok(unsafe { function($($argument),*) }),
                    None => Err(DriverError::refused(DriverErrorKind::Unsupported, stringify!($name), MISSING)),
                }
            }
        )*
    };
}

const MISSING: &str = "the driver is too old for this call: update it";

calls! {
    cuCtxEnablePeerAccess "cuCtxEnablePeerAccess" (peer: CUcontext, flags: c_uint);
    cuCtxGetCurrent "cuCtxGetCurrent" (context: *mut CUcontext);
    cuCtxGetStreamPriorityRange "cuCtxGetStreamPriorityRange" (least: *mut c_int, greatest: *mut c_int);
    cuCtxSetCurrent "cuCtxSetCurrent" (context: CUcontext);
    cuCtxSynchronize "cuCtxSynchronize" ();
    cuDeviceCanAccessPeer "cuDeviceCanAccessPeer" (can: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDeviceGet "cuDeviceGet" (device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute "cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDeviceGetCount "cuDeviceGetCount" (count: *mut c_int);
    cuDeviceGetName "cuDeviceGetName" (name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid "cuDeviceGetUuid_v2" (uuid: *mut CUuuid, device: CUdevice);
    cuDevicePrimaryCtxRelease "cuDevicePrimaryCtxRelease_v2" (device: CUdevice);
    cuDevicePrimaryCtxRetain "cuDevicePrimaryCtxRetain" (context: *mut CUcontext, device: CUdevice);
    cuDeviceTotalMem "cuDeviceTotalMem_v2" (bytes: *mut usize, device: CUdevice);
    cuDriverGetVersion "cuDriverGetVersion" (version: *mut c_int);
    cuEventCreate "cuEventCreate" (event: *mut CUevent, flags: c_uint);
    cuEventDestroy "cuEventDestroy_v2" (event: CUevent);
    cuEventElapsedTime "cuEventElapsedTime" (milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuEventQuery "cuEventQuery" (event: CUevent);
    cuEventRecord "cuEventRecord" (event: CUevent, stream: CUstream);
    cuEventSynchronize "cuEventSynchronize" (event: CUevent);
    cuGetErrorName "cuGetErrorName" (code: Answer, name: *mut *const c_char);
    cuGraphAddEmptyNode "cuGraphAddEmptyNode"
        (node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
    cuGraphDestroy "cuGraphDestroy" (graph: CUgraph);
    cuGraphExecDestroy "cuGraphExecDestroy" (graph: CUgraphExec);
    cuGraphGetEdges "cuGraphGetEdges"
        (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges_v2 "cuGraphGetEdges_v2"
        (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut EdgeData, count: *mut usize);
    cuGraphInstantiateWithFlags "cuGraphInstantiateWithFlags"
        (executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphLaunch "cuGraphLaunch" (graph: CUgraphExec, stream: CUstream);
    cuGraphUpload "cuGraphUpload" (graph: CUgraphExec, stream: CUstream);
    cuInit "cuInit" (flags: c_uint);
    cuIpcCloseMemHandle "cuIpcCloseMemHandle" (at: CUdeviceptr);
    cuIpcGetMemHandle "cuIpcGetMemHandle" (handle: *mut Handle, at: CUdeviceptr);
    cuIpcOpenMemHandle "cuIpcOpenMemHandle_v2" (at: *mut CUdeviceptr, handle: Handle, flags: c_uint);
    cuMemAddressFree "cuMemAddressFree" (at: CUdeviceptr, len: usize);
    cuMemAddressReserve "cuMemAddressReserve"
        (at: *mut CUdeviceptr, len: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong);
    cuMemAlloc "cuMemAlloc_v2" (at: *mut CUdeviceptr, len: usize);
    cuMemCreate "cuMemCreate"
        (pages: *mut c_ulonglong, len: usize, properties: *const Properties, flags: c_ulonglong);
    cuMemExportToShareableHandle "cuMemExportToShareableHandle"
        (handle: *mut c_int, pages: c_ulonglong, kind: c_uint, flags: c_ulonglong);
    cuMemFree "cuMemFree_v2" (at: CUdeviceptr);
    cuMemFreeHost "cuMemFreeHost" (at: *mut c_void);
    cuMemGetAllocationGranularity "cuMemGetAllocationGranularity"
        (bytes: *mut usize, properties: *const Properties, option: c_uint);
    cuMemGetInfo "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    cuMemHostAlloc "cuMemHostAlloc" (at: *mut *mut c_void, len: usize, flags: c_uint);
    cuMemImportFromShareableHandle "cuMemImportFromShareableHandle"
        (pages: *mut c_ulonglong, handle: *mut c_void, kind: c_uint);
    cuMemMap "cuMemMap" (at: CUdeviceptr, len: usize, offset: usize, pages: c_ulonglong, flags: c_ulonglong);
    cuMemRelease "cuMemRelease" (pages: c_ulonglong);
    cuMemSetAccess "cuMemSetAccess" (at: CUdeviceptr, len: usize, access: *const Access, count: usize);
    cuMemUnmap "cuMemUnmap" (at: CUdeviceptr, len: usize);
    cuMemcpyAsync "cuMemcpyAsync" (to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyDtoDAsync "cuMemcpyDtoDAsync_v2"
        (to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyDtoHAsync "cuMemcpyDtoHAsync_v2"
        (to: *mut c_void, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyHtoDAsync "cuMemcpyHtoDAsync_v2"
        (to: CUdeviceptr, from: *const c_void, len: usize, stream: CUstream);
    cuMemcpyPeerAsync "cuMemcpyPeerAsync"
        (to: CUdeviceptr, on: CUcontext, from: CUdeviceptr, of: CUcontext, len: usize, stream: CUstream);
    cuMemsetD8Async "cuMemsetD8Async" (at: CUdeviceptr, value: u8, len: usize, stream: CUstream);
    cuStreamBeginCapture "cuStreamBeginCapture_v2" (stream: CUstream, mode: c_uint);
    cuStreamCreateWithPriority "cuStreamCreateWithPriority"
        (stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy "cuStreamDestroy_v2" (stream: CUstream);
    cuStreamEndCapture "cuStreamEndCapture" (stream: CUstream, graph: *mut CUgraph);
    cuStreamGetCaptureInfo_v2 "cuStreamGetCaptureInfo_v2"
        (stream: CUstream, status: *mut c_uint, id: *mut c_ulonglong, graph: *mut CUgraph,
         last: *mut *const CUgraphNode, count: *mut usize);
    cuStreamGetCaptureInfo_v3 "cuStreamGetCaptureInfo_v3"
        (stream: CUstream, status: *mut c_uint, id: *mut c_ulonglong, graph: *mut CUgraph,
         last: *mut *const CUgraphNode, data: *mut *const EdgeData, count: *mut usize);
    cuStreamGetCtx "cuStreamGetCtx" (stream: CUstream, context: *mut CUcontext);
    cuStreamGetCtx_v2 "cuStreamGetCtx_v2" (stream: CUstream, context: *mut CUcontext, green: *mut *mut c_void);
    cuStreamIsCapturing "cuStreamIsCapturing" (stream: CUstream, status: *mut c_uint);
    cuStreamQuery "cuStreamQuery" (stream: CUstream);
    cuStreamSynchronize "cuStreamSynchronize" (stream: CUstream);
    cuStreamWaitEvent "cuStreamWaitEvent" (stream: CUstream, event: CUevent, flags: c_uint);
    cuThreadExchangeStreamCaptureMode "cuThreadExchangeStreamCaptureMode" (mode: *mut c_uint);
}

/// Makes a call, such as `call!(cuMemAlloc(at, len))`, and converts its return code into a result. Needs an unsafe
/// block, like any driver call.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {
        $crate::calls::$name($($argument),*)
            .and_then(|answer| $crate::answer::of(stringify!($name), answer))
    };
}
pub(crate) use call;

#[cfg(test)]
mod tests {
    use super::*;

    mod missing {
        #![allow(dead_code, reason = "the list of one name")]
        use super::*;

        calls! {
            cuNoSuchCall "cuNoSuchCall" ();
        }
    }

    #[test]
    fn the_readme_has_every_call() {
        let readme = include_str!("../README.md");
        let missing = NAMES.iter().filter(|name| !readme.contains(&format!("`{name}`")));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn a_call_that_the_driver_lacks_is_an_error_that_names_it() {
        // SAFETY: There is no such call.
        let error = unsafe { missing::cuNoSuchCall() }.map(drop);
        let told = error.map_err(|error| (error.kind, error.to_string()));
        let text = "cuNoSuchCall was refused: the driver is too old for this call: update it";
        assert_eq!(told, Err((DriverErrorKind::Unsupported, text.to_owned())));
    }
}
