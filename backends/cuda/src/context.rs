//! The primary context of a device, which CUDA's own runtime and other libraries share.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Health, try_twice};
use cudarc::driver::sys::{CUcontext, CUdevice, CUstream, CUstreamCaptureMode};

use crate::calls::call;
use crate::native::lost_with_context;

/// The primary context of one device, retained as long as this value lives.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: CUdevice,
    raw: CUcontext,
    /// Whether calls leave a thread without a context as it was.
    leaves_none: bool,
    health: Health,
    /// The streams of other libraries.
    pub(crate) adopted: Mutex<Vec<CUstream>>,
}

// SAFETY: The handle is only a name; CUDA lets any thread use it.
unsafe impl Send for Context {}
// SAFETY: As for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Creates the context, or retains the existing one.
    pub(crate) fn retain(device: CUdevice, leaves_none: bool) -> DriverResult<Arc<Self>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: The call writes a handle.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        let (health, adopted) = (Health::new("cuCtxSetCurrent", FORKED), Mutex::default());
        Ok(Arc::new(Self { device, raw, leaves_none, health, adopted }))
    }

    /// The handle.
    pub(crate) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes calls with the context current on this thread. If another one was current, it is again afterwards, because
    /// CUDA's runtime takes the current context for the current device. If none was, this one stays, so that programs
    /// can go on with calls of their own.
    pub(crate) fn run<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.health.run(|| {
            let mut before = std::ptr::null_mut();
            // SAFETY: The call writes a handle.
            unsafe { call!(cuCtxGetCurrent(&mut before)) }?;
            if before == self.raw {
                return calls().map_err(lost_with_context);
            }
            // SAFETY: The context is retained.
            unsafe { call!(cuCtxSetCurrent(self.raw)) }?;
            let _restored = (self.leaves_none || !before.is_null()).then(|| Restored(before));
            calls().map_err(lost_with_context)
        })
    }

    /// Like [`run`](Self::run), for calls that involve two devices. If such a call reports a lost device, it does not
    /// say which one; the next call for the lost device shows it.
    pub(crate) fn run_with_peer(&self, peer: &Self, calls: impl FnOnce() -> DriverResult<()>) -> DriverResult<()> {
        peer.run(|| Ok(()))?;
        self.run(|| Ok(calls()))?
    }

    /// Like [`run`](Self::run), for calls that would be forbidden while any thread captures work into a graph, although
    /// they are unrelated to the capture. PyTorch: `CUDAStreamCaptureModeGuard`.
    pub(crate) fn run_beside_captures<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.run(|| {
            let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
            // SAFETY: The call reads and writes one number, the mode.
            unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
            let result = calls();
            // SAFETY: The call reads and writes one number; the thread gets its own mode back.
            let _ = unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }; // ignored, to keep the result
            result
        })
    }

    /// Makes a call that releases something, and repeats it once if it fails, as the resource would otherwise be
    /// leaked. If the device is lost, the call is not repeated: its memory is lost too, and the error comes from
    /// earlier work.
    pub(crate) fn give_back(&self, call: impl Fn() -> DriverResult<()>) {
        try_twice(|| self.run_beside_captures(&call));
    }

    /// Whether the device is lost, so that it accepts no calls and does no more work.
    pub(crate) fn is_lost(&self) -> bool {
        self.health.is_lost()
    }
}

/// Makes a context current when it is dropped.
struct Restored(CUcontext);

impl Drop for Restored {
    fn drop(&mut self) {
        // SAFETY: The thread had this context, or none, when the calls began, and they destroy no context.
        let _ = unsafe { call!(cuCtxSetCurrent(self.0)) }; // it was current before
    }
}

pub(crate) const FORKED: &str = "CUDA does not work in a process that was forked from one that used it: use CUDA \
                                 only after the fork, or start a new program";

impl Drop for Context {
    fn drop(&mut self) {
        if !self.health.is_forked() {
            // SAFETY: It was retained in `retain`, and nothing made in it is left: streams and events hold a reference
            // to this.
            let _ = unsafe { call!(cuDevicePrimaryCtxRelease(self.device)) };
        }
    }
}
