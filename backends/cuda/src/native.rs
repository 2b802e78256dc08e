//! Handles shared with CUDA and cudarc, in both directions.
#![allow(unsafe_code)] // streams of other libraries

use std::ffi::c_uint;
use std::ptr;
use std::sync::{Arc, OnceLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Stream};
use cudarc::driver::sys::{CUcontext, CUdevice, CUresult as Code, CUstream, CUstreamCaptureStatus as Capture};
use cudarc::driver::{CudaContext, CudaStream as CudarcStream};

use crate::answer::{self, Answer};
use crate::calls::call;
use crate::context::Context;
use crate::cuda::Cuda;
use crate::devices;
use crate::stream::CudaStream;

/// The context in cudarc's terms, made when it is first needed.
///
/// It is shared by all users. cudarc delays freeing a slice until the streams that use it are done only within one of
/// its own contexts, and only once that context has made a stream, so one stream is kept.
#[derive(Debug, Default)]
pub(crate) struct Cudarc(OnceLock<(Arc<CudaContext>, Arc<CudarcStream>)>);

impl Cuda {
    /// Returns the device and its primary context, which is retained as long as this value lives.
    pub fn native(&self) -> (CUdevice, CUcontext) {
        (self.context.device, self.context.raw())
    }

    /// Returns the compute capability, such as `(9, 0)` for compute capability 9.0.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn compute_capability(&self) -> DriverResult<(i32, i32)> {
        devices::compute_capability(self.context.device)
    }

    /// Returns the context for cudarc, for example to load modules with. It is the same one each time, because freeing
    /// slices of another cudarc context does not wait for work on this one's streams.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn cudarc(&self) -> DriverResult<Arc<CudaContext>> {
        self.context.run(|| Ok(()))?; // a lost or forked device returns its own error
        if let Some((context, _)) = self.cudarc.0.get() {
            return Ok(Arc::clone(context));
        }
        // Must be possible during captures: when cudarc makes the first stream, it waits for the device.
        let made = self.context.run_beside_captures(|| {
            let context = CudaContext::new(self.ordinal as usize);
            let made = context.and_then(|context| context.new_stream().map(|stream| (context, stream)));
            made.map_err(|error| answer::error("cudarc::CudaContext::new", error.0 as Answer))
        })?;
        Ok(Arc::clone(&self.cudarc.0.get_or_init(|| made).0))
    }

    /// Returns whether a stream belongs to this device's primary context, or to a green context of it. Events of this
    /// device cannot be recorded on others.
    ///
    /// # Safety
    /// `stream` is alive.
    ///
    /// # Errors
    /// Errors of the driver.
    pub unsafe fn owns(&self, stream: CUstream) -> DriverResult<bool> {
        let (mut context, mut green) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: The stream is alive, and the call writes two handles.
        // If a device is lost, it may be the stream's.
        let asked = self.context.run(|| Ok(unsafe { call!(cuStreamGetCtx_v2(stream, &mut context, &mut green)) }))?;
        let asked = asked.or_else(|error| match error.kind {
            // The driver is older than CUDA 12.5, whose call would name a green context itself.
            DriverErrorKind::Unsupported => {
                // SAFETY: The stream is alive, and the call writes a handle.
                self.context.run(|| Ok(unsafe { call!(cuStreamGetCtx(stream, &mut context)) }))?
            }
            _ => Err(error),
        });
        asked.map(|()| context == self.context.raw())
    }

    /// Waits for the work of any stream, such as one that cannot be adopted.
    ///
    /// # Safety
    /// `stream` is alive.
    ///
    /// # Errors
    /// Errors of the driver.
    pub unsafe fn wait_for(&self, stream: CUstream) -> DriverResult<()> {
        // SAFETY: The stream is alive.
        let wait = || unsafe { call!(cuStreamSynchronize(stream)) };
        self.context.run_beside_captures(|| Ok(wait()))? // if a device is lost, it may be the stream's
    }

    /// Wraps a stream that another library made in the primary context, for
    /// [`Accelerator::external_stream`](accelerator_core::Accelerator::external_stream).
    ///
    /// # Safety
    /// * `stream` belongs to this device's primary context and is the same on every thread, so it is not
    ///   `CU_STREAM_PER_THREAD`.
    /// * It lives as long as the returned stream; with `external_stream`, that is as long as the process. If its
    ///   library destroys it earlier, the driver has to answer so in every call about it, as CUDA's does. Its work then
    ///   counts as over once the whole context was waited for.
    pub unsafe fn adopt(&self, stream: CUstream) -> CudaStream {
        lock(&self.context.adopted).push(stream);
        CudaStream::borrowed(stream, &self.context)
    }
}

impl CudaStream {
    /// Whether the stream is being captured. One that is gone counts as captured while others are, so that it is not
    /// waited for meanwhile.
    pub(crate) fn is_capturing(&self) -> DriverResult<bool> {
        is_capturing(&self.context, self.raw).or_else(|error| match self.is_gone(&error) {
            true => Ok(self.is_beside_capture()),
            false => Err(error),
        })
    }

    /// Takes the error of a call about the stream. If its library has destroyed it, waits for all work of the context,
    /// among which is what the stream has left. Returns the error if the stream is not gone, or the wait would break a
    /// capture.
    pub(crate) fn end_if_gone(&self, error: DriverError) -> DriverResult<()> {
        if !self.is_gone(&error) || self.is_beside_capture() {
            return Err(error);
        }
        // SAFETY: The call has no arguments.
        self.context.run_beside_captures(|| unsafe { call!(cuCtxSynchronize()) })
    }

    /// Whether this error of a call about the stream says that its library has destroyed it.
    fn is_gone(&self, error: &DriverError) -> bool {
        /// `CUDA_ERROR_STREAM_DETACHED`, which older bindings lack.
        const DETACHED: i64 = 917;
        let codes = [Code::CUDA_ERROR_INVALID_HANDLE, Code::CUDA_ERROR_CONTEXT_IS_DESTROYED];
        let is_told = error.code == DETACHED || codes.iter().any(|code| answer::is(error, *code));
        is_told && !self.owned && !self.raw.is_null() && error.kind != DriverErrorKind::DeviceLost
    }

    /// Whether a stream of another library is being captured.
    fn is_beside_capture(&self) -> bool {
        let adopted = lock(&self.context.adopted);
        adopted.iter().any(|stream| matches!(is_capturing(&self.context, *stream), Ok(true)))
    }
}

fn is_capturing(context: &Context, stream: CUstream) -> DriverResult<bool> {
    let mut status = Capture::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
    // SAFETY: The stream is alive, and the call writes a number.
    let asked = context.run(|| unsafe { call!(cuStreamIsCapturing(stream, &mut status)) });
    match asked {
        Ok(()) => Ok(status != Capture::CU_STREAM_CAPTURE_STATUS_NONE as c_uint),
        // For the legacy stream, this means that another stream is capturing.
        Err(error) if answer::is(&error, Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Takes the error of a call with the context current. A stream that its library has destroyed has the code of a
/// destroyed context. The device is lost only if a call about the context itself says so, too.
pub(crate) fn lost_with_context(mut error: DriverError) -> DriverError {
    let (mut free, mut total) = (0, 0);
    // SAFETY: The call writes two numbers.
    let mut ask = || unsafe { call!(cuMemGetInfo(&mut free, &mut total)) };
    let is_lost = |told: DriverError| told.code == error.code || told.kind == DriverErrorKind::DeviceLost;
    if answer::is(&error, Code::CUDA_ERROR_CONTEXT_IS_DESTROYED) && ask().is_err_and(is_lost) {
        error.kind = DriverErrorKind::DeviceLost;
    }
    error
}

/// Returns the stream for cudarc. Work submitted through either handle runs in one order.
///
/// # Errors
/// Errors of the driver.
pub fn cudarc_stream(stream: Stream<Cuda>) -> DriverResult<Arc<CudarcStream>> {
    let context = stream.backend().cudarc()?;
    // SAFETY: The stream belongs to this context, and streams of the core live as long as the process.
    Ok(unsafe { context.wrap_borrowed_stream(stream.native().native()) })
}
