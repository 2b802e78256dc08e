//! Graphs: captures, and launches of what was captured.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{CaptureMode, DriverResult, ExecutableGraph, Graphs};
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode as Mode};

use crate::calls::call;
use crate::context::Context;
use crate::cuda::Cuda;
use crate::library;
use crate::marks;
use crate::stream::CudaStream;

/// Whether the driver has all that graphs need. Drivers since CUDA 11.4 do.
pub(crate) fn are_offered() -> bool {
    static OFFERED: OnceLock<bool> = OnceLock::new();
    *OFFERED.get_or_init(|| library::has("cuGraphInstantiateWithFlags"))
}

// SAFETY: A captured stream submits nothing. The driver launches a graph in the order of the stream, after the earlier
// launches of the same graph, and does its work in the order that was captured.
unsafe impl Graphs<Self> for Cuda {
    fn begin(&self, stream: &CudaStream, mode: CaptureMode) -> DriverResult<()> {
        let mode = match mode {
            CaptureMode::Global => Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
        } as c_uint;
        // SAFETY: The stream is alive.
        self.context.run(|| unsafe { call!(cuStreamBeginCapture(stream.native(), mode)) })
    }

    fn end(&self, stream: &CudaStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let mut raw = ptr::null_mut();
        // SAFETY: The stream is alive, and the call writes a handle.
        let mut end = || self.context.run(|| unsafe { call!(cuStreamEndCapture(stream.native(), &mut raw)) });
        let ended = end();
        if ended.is_err() {
            let _ = end(); // the capture would go on if the call itself had failed
        }
        // The executable graph is complete without it.
        let captured = CapturedGraph { raw, context: &self.context };
        ended?;
        captured.instantiate().map(|graph| Box::new(graph) as _)
    }

    fn capture_of(&self, stream: &CudaStream) -> DriverResult<Option<u64>> {
        marks::capture_of(&self.context, stream)
    }

    fn mark(&self, stream: &CudaStream) -> DriverResult<Option<u64>> {
        marks::mark(&self.context, stream)
    }

    fn precede(&self, marks: &[u64], stream: &CudaStream) -> DriverResult<Vec<bool>> {
        marks::precede(&self.context, marks, stream)
    }
}

/// What a capture returns. Null if it failed.
struct CapturedGraph<'a> {
    raw: CUgraph,
    context: &'a Arc<Context>,
}

impl CapturedGraph<'_> {
    fn instantiate(&self) -> DriverResult<CudaGraph> {
        /// Without this flag, a graph with captured allocations, such as another library's, can be launched only once.
        const AUTO_FREE_ON_LAUNCH: c_ulonglong = 1;
        let mut raw = ptr::null_mut();
        // SAFETY: The graph is alive, nothing else uses it, and the call writes a handle.
        let make = || unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, self.raw, AUTO_FREE_ON_LAUNCH)) };
        self.context.run_beside_captures(make)?;
        Ok(CudaGraph { raw: Mutex::new(raw), context: Arc::clone(self.context) })
    }
}

impl Drop for CapturedGraph<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: The graph came from a capture, and nothing else destroys it. A failing call destroys nothing.
            self.context.give_back(|| unsafe { call!(cuGraphDestroy(self.raw)) });
        }
    }
}

/// A CUDA graph that can be launched.
#[derive(Debug)]
struct CudaGraph {
    /// Locked during calls, because CUDA does not allow two threads to use one graph at the same time.
    raw: Mutex<CUgraphExec>,
    context: Arc<Context>,
}

// SAFETY: The handle is only a name; CUDA lets any thread use it, one at a time.
unsafe impl Send for CudaGraph {}
// SAFETY: As for `Send`; the lock lets in one thread at a time.
unsafe impl Sync for CudaGraph {}

// SAFETY: As for `Graphs`.
unsafe impl ExecutableGraph<Cuda> for CudaGraph {
    unsafe fn launch(&self, stream: &CudaStream) -> DriverResult<()> {
        let raw = lock(&self.raw);
        // SAFETY: The graph and the stream are alive. The caller answers for the memory that the work uses.
        self.context.run(|| unsafe { call!(cuGraphLaunch(*raw, stream.native())) })
    }

    fn upload(&self, stream: &CudaStream) -> DriverResult<()> {
        let raw = lock(&self.raw);
        // SAFETY: The graph and the stream are alive.
        self.context.run(|| unsafe { call!(cuGraphUpload(*raw, stream.native())) })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        let raw = *lock(&self.raw);
        // SAFETY: The graph was made by `instantiate`, and nothing else destroys it. The driver does launched work
        // first. A failing call destroys nothing.
        self.context.give_back(|| unsafe { call!(cuGraphExecDestroy(raw)) });
    }
}
