//! Handles of CUDA and of cudarc, both ways.
#![allow(unsafe_code)] // streams of others

use std::sync::{Arc, OnceLock};

use accelerator_core::{DriverResult, Stream};
use cudarc::driver::sys::{CUcontext, CUdevice, CUstream};
use cudarc::driver::{CudaContext, CudaStream as CudarcStream};

use crate::answer::{self, Answer};
use crate::cuda::Cuda;
use crate::devices;
use crate::stream::CudaStream;

/// What cudarc calls the context, made when it is first asked for.
///
/// One for all: cudarc keeps slices from being freed under work of several streams only within one context of its own, and
/// only once that has made a stream, which is why one is kept.
#[derive(Debug, Default)]
pub(crate) struct Cudarc(OnceLock<(Arc<CudaContext>, Arc<CudarcStream>)>);

impl Cuda {
    /// The device and its primary context, which stays while this lives.
    pub fn native(&self) -> (CUdevice, CUcontext) {
        (self.context.device, self.context.raw())
    }

    /// What the device's processors can do, `(9, 0)` for compute capability 9.0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn compute_capability(&self) -> DriverResult<(i32, i32)> {
        devices::compute_capability(self.context.device)
    }

    /// The same context for cudarc, to load modules with, for one. Always the same one: with slices of another context of
    /// cudarc, work of this one's streams is not waited for when they are freed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn cudarc(&self) -> DriverResult<Arc<CudaContext>> {
        self.context.run(|| Ok(()))?; // a lost or forked device says so itself
        if let Some((context, _)) = self.cudarc.0.get() {
            return Ok(Arc::clone(context));
        }
        // Beside captures, since the first stream makes cudarc wait for the device.
        let made = self.context.run_beside_captures(|| {
            let context = CudaContext::new(self.ordinal as usize);
            let made = context.and_then(|context| context.new_stream().map(|stream| (context, stream)));
            made.map_err(|error| answer::error("cudarc::CudaContext::new", error.0 as Answer))
        })?;
        Ok(Arc::clone(&self.cudarc.0.get_or_init(|| made).0))
    }

    /// A stream that another library made in the primary context, for
    /// [`Accelerator::external_stream`](accelerator_core::Accelerator::external_stream).
    ///
    /// # Safety
    /// * `stream` is one of this device's primary context, and the same on every thread: not `CU_STREAM_PER_THREAD`.
    /// * It lives as long as what is returned, which with `external_stream` is as long as the process.
    pub unsafe fn adopt(&self, stream: CUstream) -> CudaStream {
        CudaStream::borrowed(stream, &self.context)
    }
}

/// The stream for cudarc: work that is given to the one and work that is given to the other runs in one order.
///
/// # Errors
/// What the driver says.
pub fn cudarc_stream(stream: Stream<Cuda>) -> DriverResult<Arc<CudarcStream>> {
    let context = stream.backend().cudarc()?;
    // SAFETY: The stream is one of this context's, and streams of the core live as long as the process.
    Ok(unsafe { context.wrap_borrowed_stream(stream.native().native()) })
}
