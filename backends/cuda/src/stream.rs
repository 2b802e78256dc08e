//! Streams and events.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_uint;
use std::sync::Arc;

use accelerator_core::backend_kit::try_twice;
use accelerator_core::{DriverResult, EventFlags, StreamKind};
use cudarc::driver::sys::{
    CUevent, CUevent_flags as EventFlag, CUresult as Code, CUstream, CUstream_flags as StreamFlag,
};

use crate::answer::{self, Answer};
use crate::calls::{self, call};
use crate::context::Context;

/// A CUDA stream.
#[derive(Debug)]
pub struct CudaStream {
    pub(crate) raw: CUstream,
    pub(crate) context: Arc<Context>,
    pub(crate) owned: bool,
}

// SAFETY: The handle is only a name; CUDA lets any thread use it.
unsafe impl Send for CudaStream {}
// SAFETY: As for `Send`.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(crate) fn make(context: &Arc<Context>, kind: StreamKind) -> DriverResult<Self> {
        let mut raw = std::ptr::null_mut();
        match kind {
            StreamKind::Default => Ok(Self::borrowed(raw, context)),
            kind => {
                let (flags, priority) = (StreamFlag::CU_STREAM_NON_BLOCKING as c_uint, kind.priority());
                // SAFETY: The call writes a handle.
                context.run(|| unsafe { call!(cuStreamCreateWithPriority(&mut raw, flags, priority)) })?;
                Ok(Self { raw, context: Arc::clone(context), owned: true })
            }
        }
    }

    /// Wraps a stream that another owner destroys.
    pub(crate) fn borrowed(raw: CUstream, context: &Arc<Context>) -> Self {
        Self { raw, context: Arc::clone(context), owned: false }
    }

    /// Returns the stream for other libraries; null is the legacy default stream. It is valid as long as this value
    /// lives.
    pub fn native(&self) -> CUstream {
        self.raw
    }

    /// Waits even if it fails, since the caller is about to touch the host memory of copies. If the call itself failed,
    /// rather than the work, it is therefore retried; if the error persists, the stream no longer exists.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: The stream is alive.
        let wait = || unsafe { call!(cuStreamSynchronize(self.raw)) };
        let waited = self.context.run_beside_captures(wait).or_else(|error| self.end_if_gone(error));
        if waited.is_err() && !self.context.is_lost() {
            let _ = (0..3).find(|_| self.context.run_beside_captures(wait).is_ok());
        }
        waited
    }

    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        let asked = self.context.run_beside_captures(|| {
            // SAFETY: The stream is alive.
            let answer = unsafe { calls::cuStreamQuery(self.raw) };
            is_reached("cuStreamQuery", answer?)
        });
        asked.or_else(|error| self.end_if_gone(error).map(|()| true))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: The stream was made by `make`, and nothing else destroys it. The driver finishes its pending work
            // first.
            try_twice(|| self.context.run(|| unsafe { call!(cuStreamDestroy(self.raw)) }));
        }
    }
}

/// A CUDA event.
#[derive(Debug)]
pub struct CudaEvent {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: The handle is only a name; CUDA lets any thread use it.
unsafe impl Send for CudaEvent {}
// SAFETY: As for `Send`.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    pub(crate) fn make(context: &Arc<Context>, flags: EventFlags) -> DriverResult<Self> {
        let mut raw = std::ptr::null_mut();
        // The driver itself rejects an interprocess event with timing.
        let flag = |is_set: bool, flag: EventFlag| if is_set { flag as c_uint } else { 0 };
        let flags = flag(!flags.enable_timing, EventFlag::CU_EVENT_DISABLE_TIMING)
            | flag(flags.blocking, EventFlag::CU_EVENT_BLOCKING_SYNC)
            | flag(flags.interprocess, EventFlag::CU_EVENT_INTERPROCESS);
        // SAFETY: The call writes a handle.
        context.run(|| unsafe { call!(cuEventCreate(&mut raw, flags)) })?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Returns the event for other libraries. It is valid as long as this value lives.
    pub fn native(&self) -> CUevent {
        self.raw
    }

    pub(crate) fn record(&self, stream: &CudaStream) -> DriverResult<()> {
        // SAFETY: The event and the stream are alive. The default stream always is.
        let record = |on| self.context.run(|| unsafe { call!(cuEventRecord(self.raw, on)) });
        record(stream.raw).or_else(|error| stream.end_if_gone(error).and_then(|()| record(std::ptr::null_mut())))
    }

    /// Makes the stream wait for this event. The stream may belong to another device.
    pub(crate) fn wait_on(&self, stream: &CudaStream) -> DriverResult<()> {
        // SAFETY: The event and the stream are alive; 0 is the only flag.
        let wait = || unsafe { call!(cuStreamWaitEvent(stream.raw, self.raw, 0)) };
        match Arc::ptr_eq(&stream.context, &self.context) {
            true => self.context.run(wait),
            false => stream.context.run_with_peer(&self.context, wait),
        }
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        let asked = self.context.run_beside_captures(|| {
            // SAFETY: The event is alive.
            let answer = unsafe { calls::cuEventQuery(self.raw) };
            is_reached("cuEventQuery", answer?)
        });
        // A lost device does no more work, so all of its work counts as complete.
        asked.or_else(|error| if self.context.is_lost() { Ok(true) } else { Err(error) })
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        // SAFETY: The event is alive.
        self.context.run_beside_captures(|| unsafe { call!(cuEventSynchronize(self.raw)) })
    }

    pub(crate) fn elapsed_ns(&self, end: &Self) -> DriverResult<i64> {
        let mut milliseconds = 0.0;
        // SAFETY: The events are alive, and the call writes a number.
        self.context.run(|| unsafe { call!(cuEventElapsedTime(&mut milliseconds, self.raw, end.raw)) })?;
        Ok((f64::from(milliseconds) * 1e6).round() as i64)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: The event was made by `make`, and nothing else destroys it. The driver keeps it until it is complete.
        try_twice(|| self.context.run(|| unsafe { call!(cuEventDestroy(self.raw)) }));
    }
}

/// Converts the return code of a query. "Not ready" is not an error and is frequent, so no error text is looked up for
/// it.
fn is_reached(call: &'static str, answer: Answer) -> DriverResult<bool> {
    const NOT_READY: Answer = Code::CUDA_ERROR_NOT_READY as Answer;
    match answer {
        NOT_READY => Ok(false),
        answer => answer::of(call, answer).map(|()| true),
    }
}
