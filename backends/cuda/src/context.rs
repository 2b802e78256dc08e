//! The primary context of a device, which CUDA's own runtime and other libraries share.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_uint;
use std::sync::{Arc, OnceLock};

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use cudarc::driver::sys::{CUcontext, CUdevice, CUstreamCaptureMode};

use crate::answer;
use crate::calls::call;

/// The primary context of one device, held while this lives.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: CUdevice,
    raw: CUcontext,
    process: u32,
    /// The error after which the device answers every call with it.
    lost: OnceLock<DriverError>,
}

// SAFETY: The handle is a name: CUDA lets every thread use it.
unsafe impl Send for Context {}
// SAFETY: As for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Makes the context, or joins those who use it already.
    pub(crate) fn retain(device: CUdevice) -> DriverResult<Arc<Self>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: The call writes a handle.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        Ok(Arc::new(Self { device, raw, process: std::process::id(), lost: OnceLock::new() }))
    }

    /// The handle.
    pub(crate) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes calls with the context current on this thread. It is set each time: other libraries set theirs.
    pub(crate) fn run<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        if let Some(error) = self.lost.get() {
            return Err(*error);
        }
        if std::process::id() != self.process {
            return Err(answer::refused("cuCtxSetCurrent", DriverErrorKind::DeviceLost, FORKED));
        }
        // SAFETY: The context is held.
        let current = unsafe { call!(cuCtxSetCurrent(self.raw)) };
        current.and_then(|()| calls()).inspect_err(|error| {
            if error.kind == DriverErrorKind::DeviceLost {
                let _ = self.lost.set(*error); // the first one counts
            }
        })
    }

    /// As [`run`](Self::run), for calls that two devices have part in: that a device is lost does not say which. The next call
    /// of the one that is tells.
    pub(crate) fn run_with_peer(
        &self,
        peer: &Self,
        calls: impl FnOnce() -> DriverResult<()>,
    ) -> DriverResult<()> {
        let mut result = Ok(());
        peer.run(|| Ok(()))?;
        self.run(|| {
            result = calls();
            Ok(())
        })?;
        result
    }

    /// As [`run`](Self::run), for calls that a capture of any thread's work into a graph would forbid, though they have
    /// nothing to do with it. PyTorch: `CUDAStreamCaptureModeGuard`.
    pub(crate) fn run_beside_captures<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.run(|| {
            let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
            // SAFETY: The call reads and writes a mode.
            unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
            let result = calls();
            // SAFETY: The call reads and writes a mode, which is the thread's own again.
            let _ = unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }; // or what was made would be lost
            result
        })
    }

    /// Makes a call that gives something back, and once more should it fail: else that would be lost for good. Not so where the
    /// device is lost, and its memory with it: that is how errors of earlier work are told.
    pub(crate) fn give_back(&self, call: impl Fn() -> DriverResult<()>) {
        let _ = self.run_beside_captures(&call).or_else(|_| self.run_beside_captures(&call));
    }

    /// Whether the device answers no call any more, so that none of its work is done any more either.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }
}

pub(crate) const FORKED: &str = "CUDA does not work in a process that was forked from one that used it: use CUDA \
                                 only after the fork, or start a new program";

impl Drop for Context {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            // SAFETY: Held since `retain`, and nothing made in it is left: streams and events hold this.
            let _ = unsafe { call!(cuDevicePrimaryCtxRelease(self.device)) };
        }
    }
}
