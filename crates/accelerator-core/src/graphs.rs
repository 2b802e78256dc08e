//! Graphs: work of streams that is captured once and launched many times.

use std::fmt::Debug;

use crate::backend::Backend;
use crate::types::DriverResult;

/// Which calls of other threads a capture forbids. CUDA: `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// A call that may break a capture, such as allocating from the driver, fails on any thread. PyTorch's default.
    #[default]
    Global,
    /// Such a call fails only on the thread that began the capture.
    ThreadLocal,
    /// Such a call fails on no thread.
    Relaxed,
}

/// A backend's graphs.
///
/// Between [`begin`](Self::begin) and [`end`](Self::end), work submitted to the stream becomes part of a graph instead
/// of running: copies, fills, kernels, records of events and waits for them. A stream that waits for an event recorded
/// on a capturing stream takes part in the capture from then on, and the stream that began the capture must wait for it
/// before the end. While a stream captures, waiting for it on the host, querying it, and querying events that were
/// recorded in a capture fail with [`InvalidArgument`](crate::DriverErrorKind::InvalidArgument) or the driver's error.
///
/// # Safety
/// *For backend authors.* As for [`Backend`]. Captured work does not run before the graph is launched. A launched graph
/// is work of its stream like any other: it begins after the earlier work of the stream, and later work begins after
/// all of it. It does the work that was captured, each part after the parts that it was ordered after.
#[allow(unsafe_code)] // the core relies on the contract, as for `Backend`
pub unsafe trait Graphs<B: Backend>: Send + Sync {
    /// Begins to capture the work of a stream. CUDA: `cuStreamBeginCapture`.
    ///
    /// # Errors
    /// The driver's error, in particular for a stream that captures already. A device's default stream may be refused.
    fn begin(&self, stream: &B::Stream, mode: CaptureMode) -> DriverResult<()>;

    /// Ends the capture that [`begin`](Self::begin) began on this stream, and returns its graph, ready to be launched.
    /// CUDA: `cuStreamEndCapture`, `cuGraphInstantiate`.
    ///
    /// # Errors
    /// The driver's error, in particular if the capture was broken, or if a stream that takes part was not waited for.
    /// The capture is over then, too.
    fn end(&self, stream: &B::Stream) -> DriverResult<Box<dyn ExecutableGraph<B>>>;

    /// Returns the number of the capture that a stream takes part in, if it does. No two captures of a process have the
    /// same number. CUDA: `cuStreamGetCaptureInfo`.
    ///
    /// # Errors
    /// The driver's error.
    fn capture_of(&self, stream: &B::Stream) -> DriverResult<Option<u64>>;

    /// Adds an empty node after everything that the stream has captured so far, and returns a number for it. Returns
    /// `None` if the stream captures nothing, has not captured anything yet, or if the backend has no such nodes. CUDA:
    /// `cuGraphAddEmptyNode`.
    ///
    /// # Errors
    /// The driver's error; nothing is added then.
    fn mark(&self, _stream: &B::Stream) -> DriverResult<Option<u64>> {
        Ok(None)
    }

    /// Returns, for each of these nodes of [`mark`](Self::mark) in the stream's capture, whether it precedes everything
    /// that the stream will capture from now on.
    ///
    /// # Errors
    /// The driver's error.
    fn precede(&self, marks: &[u64], _stream: &B::Stream) -> DriverResult<Vec<bool>> {
        Ok(vec![false; marks.len()])
    }
}

/// A graph that can be launched. Dropping it does not stop launched work.
///
/// # Safety
/// As for [`Graphs`].
#[allow(unsafe_code)] // the core relies on the contract, as for `Backend`
pub unsafe trait ExecutableGraph<B: Backend>: Send + Sync + Debug {
    /// Submits the work of the graph to a stream. It may be launched any number of times, on any stream of the device
    /// that is not capturing. Two launches of the same graph run one after another, even on different streams. CUDA:
    /// `cuGraphLaunch`.
    ///
    /// # Errors
    /// The driver's error. A part of the graph may have run then, but nothing of it runs after the call.
    ///
    /// # Safety
    /// * All memory that the captured work uses is valid, as for the captured calls, until the stream has done the
    ///   work.
    unsafe fn launch(&self, stream: &B::Stream) -> DriverResult<()>;

    /// Prepares the next launch on this stream, so that it costs less. CUDA: `cuGraphUpload`.
    ///
    /// # Errors
    /// The driver's error. The graph may still be launched.
    fn upload(&self, _stream: &B::Stream) -> DriverResult<()> {
        Ok(())
    }
}
