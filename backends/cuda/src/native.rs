//! Handles shared with CUDA and cudarc, in both directions.
#![allow(unsafe_code)] // streams of other libraries

use std::ptr;
use std::sync::{Arc, OnceLock};

use accelerator_core::{DriverErrorKind, DriverResult, Stream};
use cudarc::driver::sys::{CUcontext, CUdevice, CUstream};
use cudarc::driver::{CudaContext, CudaStream as CudarcStream};

use crate::answer::{self, Answer};
use crate::calls::call;
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
    /// * It lives as long as the returned stream; with `external_stream`, that is as long as the process.
    pub unsafe fn adopt(&self, stream: CUstream) -> CudaStream {
        CudaStream::borrowed(stream, &self.context)
    }
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
