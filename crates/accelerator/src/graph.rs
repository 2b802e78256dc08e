//! Graphs of the current accelerator.
#![allow(unsafe_code)] // launches captured work

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Backend, CaptureMode, Device, Error, MemPoolId, Result, StreamId};

use crate::backends::{AnyDevice, AnyGraph, dispatch};
use crate::device_arg::DeviceArg;
use crate::guard::StreamGuard;
use crate::stream::Stream;
use crate::typed::alike;

/// Work of streams that is captured once and replayed any number of times. PyTorch: `torch.accelerator.Graph`,
/// `torch.cuda.CUDAGraph`.
///
/// While work is captured, the requests of the capturing streams get their memory from a private pool. The graph keeps
/// the memory of that pool until it is [reset](Self::reset) or dropped, because each replay uses it again. Capture with
/// [`graph()`], which also chooses a stream.
pub struct Graph {
    any: AnyGraph,
    accelerator: AnyDevice,
}

impl Graph {
    /// Makes an empty graph. Opens the device. PyTorch: `torch.accelerator.Graph()`.
    ///
    /// # Errors
    /// [`Error::Driver`] of the kind [`Unsupported`](crate::DriverErrorKind::Unsupported) if the device has no graphs;
    /// errors of [`DeviceArg`] and of opening the device.
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let accelerator = device.into().open()?;
        let any = dispatch!(AnyDevice, accelerator, device => accelerator_core::Graph::new(device)?.into());
        Ok(Self { any, accelerator })
    }

    /// Returns its device.
    pub fn device(&self) -> Device {
        self.accelerator.device()
    }

    /// Begins to capture the work on the current stream of its device, which must not be the default stream. Requests
    /// of the capturing streams go to `pool`; `None`: to a pool of the graph's own. Graphs that share a pool may
    /// overwrite one another's memory, so they must be replayed in the order in which they were captured. PyTorch:
    /// `Graph.capture_begin`.
    ///
    /// # Errors
    /// [`Error::Graph`] if the graph is not empty; [`Error::MemPool`] for [`MemPoolId::DEFAULT`]; [`Error::Driver`], in
    /// particular for the default stream and for a stream that captures already.
    pub fn capture_begin(&mut self, pool: Option<MemPoolId>, mode: CaptureMode) -> Result<()> {
        let stream = self.current_stream();
        dispatch!(AnyGraph, self.any, ref mut graph => graph.capture_begin(stream.typed()?, pool, mode))
    }

    /// Ends the capture. The stream that was captured becomes the current stream of its device again. PyTorch:
    /// `Graph.capture_end`.
    ///
    /// # Errors
    /// [`Error::Graph`] if no capture is underway. [`Error::Driver`] if the capture was broken; the graph is empty
    /// then.
    pub fn capture_end(&mut self) -> Result<()> {
        dispatch!(AnyGraph, self.any, ref mut graph => graph.capture_end())
    }

    /// Submits the captured work to the current stream of its device. PyTorch: `Graph.replay`.
    ///
    /// # Errors
    /// [`Error::Graph`] if nothing was captured. [`Error::MemPool`] if one of the graph's pools is paused.
    /// [`Error::Driver`]; a part of the graph may have run then, but nothing of it runs after the call.
    ///
    /// # Safety
    /// * All buffers outside of the graph's pools that the captured work uses exist, and continue to exist until the
    ///   stream has done the work. Memory of the pools needs no buffer.
    /// * None of these buffers is in a pool that is [paused](crate::MemPool::pause), or that another thread begins to
    ///   pause during the call: only for the graph's own pools is this checked.
    /// * Work on other streams that uses the same memory, or memory of the same pools, is ordered before or after it.
    /// * Once the graph is reset or dropped, the memory of its pools goes back in the next call, on any thread, that
    ///   gives memory back to the driver. The work is done before. Such calls are [`empty_cache`](crate::empty_cache),
    ///   [`empty_pool_cache`](crate::memory::empty_pool_cache), [`MemPool::trim`](crate::MemPool::trim), the drop of a
    ///   guard that [trims](crate::MemPoolOptions::trims), the drop of a `MemPool`, and a request that finds no memory.
    pub unsafe fn replay(&self) -> Result<()> {
        let stream = self.current_stream();
        // SAFETY: The caller keeps the same promises.
        dispatch!(AnyGraph, self.any, ref graph => unsafe { graph.replay(stream.typed()?) })
    }

    /// Prepares the next replay on the current stream of its device, so that it costs less.
    ///
    /// # Errors
    /// The errors of [`replay`](Self::replay).
    pub fn upload(&self) -> Result<()> {
        let stream = self.current_stream();
        dispatch!(AnyGraph, self.any, ref graph => graph.upload(stream.typed()?))
    }

    /// Makes the graph empty. Memory of its pools that nothing else uses goes back to the driver with the next call
    /// that gives memory back, such as [`empty_cache`](crate::empty_cache). [Replays](Self::replay) must be done by
    /// then. A capture underway is given up. PyTorch: `Graph.reset`.
    ///
    /// # Errors
    /// [`Error::Driver`] if a capture was underway and could not be ended. The graph is empty all the same.
    pub fn reset(&mut self) -> Result<()> {
        dispatch!(AnyGraph, self.any, ref mut graph => graph.reset())
    }

    /// Returns the pool that the graph captured with, to be shared with other graphs; `None` if the graph is empty.
    /// PyTorch: `Graph.pool`.
    pub fn pool(&self) -> Option<MemPoolId> {
        dispatch!(AnyGraph, self.any, ref graph => graph.pool())
    }

    /// Returns the core's graph.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the graph belongs to another backend.
    pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::Graph<B>> {
        let found = self.device();
        let any = dispatch!(AnyGraph, self.any, ref graph => graph as &dyn Any);
        any.downcast_ref().ok_or(Error::DeviceMismatch { what: "the graph", expected: alike::<B>(found), found })
    }

    fn current_stream(&self) -> Stream {
        Stream::current_of(self.accelerator)
    }

    /// Returns the stream for captures that name none. It is always the same, so that graphs that share a pool can use
    /// one another's free memory.
    fn side_stream(&self) -> Result<Stream> {
        static SIDE_STREAMS: Mutex<BTreeMap<usize, StreamId>> = Mutex::new(BTreeMap::new());
        let device = self.accelerator.address();
        let known = lock(&SIDE_STREAMS).get(&device).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let made = self.accelerator.new_stream(0)?;
                *lock(&SIDE_STREAMS).entry(device).or_insert(made) // another thread may have been faster
            }
        };
        Ok(Stream::with_id(self.accelerator, id))
    }
}

/// How [`graph()`] captures.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureOptions<'a> {
    /// The stream to capture. `None`: one that the library keeps for this. PyTorch: `stream`.
    pub stream: Option<&'a Stream>,
    /// The pool that serves the requests of the capturing streams, such as that of another graph. `None`: a pool of the
    /// graph's own. PyTorch: `pool`.
    pub pool: Option<MemPoolId>,
    /// Which calls of other threads the capture forbids. PyTorch: `capture_error_mode`.
    pub mode: CaptureMode,
}

/// Captures work in a graph until the capture is [ended](GraphCapture::end). PyTorch: `torch.cuda.graph`, and
/// `with torch.accelerator.Graph():`.
///
/// First waits for the device, and returns its cached memory, and that of the host, to the system. Then begins to
/// capture a stream, which becomes the current stream of this thread. So the calls of this crate that follow are
/// captured instead of being executed, unless they name another stream.
///
/// ```
/// use accelerator::{Buffer, CaptureOptions, Graph, graph, synchronize};
/// # fn main() -> accelerator::Result<()> {
/// # accelerator::set_accelerator("host")?;
/// let mut buffer = Buffer::from_slice(&[0u8; 1024], None)?;
/// let mut fills = Graph::new(None)?;
/// let capture = graph(&mut fills, CaptureOptions::default())?;
/// buffer.fill(7)?;
/// capture.end()?;
/// assert_eq!(buffer.to_vec::<u8>()?, [0; 1024], "nothing has run yet");
///
/// // SAFETY: The buffer exists until the work is done, and only the current stream uses it.
/// unsafe { fills.replay()? };
/// assert_eq!(buffer.to_vec::<u8>()?, [7; 1024]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`Graph::capture_begin`]; [`Error::DeviceMismatch`] for a stream of another device;
/// [`Error::DeviceKindMismatch`] if the graph belongs to a backend other than the current accelerator;
/// [`Error::Driver`] if a wait failed, also because another capture is underway.
pub fn graph<'a>(graph: &'a mut Graph, options: CaptureOptions<'_>) -> Result<GraphCapture<'a>> {
    let CaptureOptions { stream, pool, mode } = options;
    let stream = stream.map_or_else(|| graph.side_stream(), |stream| Ok(*stream))?;
    if stream.accelerator().address() != graph.accelerator.address() {
        let (expected, found) = (graph.device(), stream.device());
        return Err(Error::DeviceMismatch { what: "the stream", expected, found });
    }
    graph.accelerator.synchronize()?;
    if graph.accelerator.is_used() {
        graph.accelerator.empty_cache()?;
    }
    graph.accelerator.empty_host_cache()?;
    let guard = StreamGuard::new(&stream)?;
    graph.capture_begin(pool, mode)?;
    Ok(GraphCapture { graph, stream, is_over: false, _guard: guard })
}

/// A capture underway. Dropping it without [`end`](Self::end) gives the capture up, and the graph is empty then.
#[must_use = "dropping it gives the capture up"]
pub struct GraphCapture<'a> {
    graph: &'a mut Graph,
    stream: Stream,
    is_over: bool,
    /// Restores the current stream and device after the capture.
    _guard: StreamGuard,
}

impl GraphCapture<'_> {
    /// Returns the stream that is captured.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Ends the capture. The stream and device that were current before are current again.
    ///
    /// # Errors
    /// [`Error::Driver`] if the capture was broken; the graph is empty then.
    pub fn end(mut self) -> Result<()> {
        self.is_over = true;
        self.graph.capture_end()
    }
}

impl Drop for GraphCapture<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.graph.reset();
        }
    }
}

/// Returns the number of a pool for graphs that nobody has used yet: for [`CaptureOptions::pool`] of several captures.
/// PyTorch: `torch.accelerator.generate_graph_pool_handle`.
pub fn generate_graph_pool_handle() -> MemPoolId {
    MemPoolId::next_graph()
}

/// Calls [`generate_graph_pool_handle`], under the name of `torch.cuda.graph_pool_handle`.
pub fn graph_pool_handle() -> MemPoolId {
    generate_graph_pool_handle()
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dispatch!(AnyGraph, self.any, ref graph => graph.fmt(f))
    }
}

impl fmt::Debug for GraphCapture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphCapture {{ {:?}, {:?} }}", self.graph, self.stream)
    }
}
