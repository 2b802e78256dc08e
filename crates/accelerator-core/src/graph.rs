//! Graphs: work of streams that is captured once and replayed.
#![allow(unsafe_code)] // launches captured work

use std::fmt;
use std::thread::{self, ThreadId};

use crate::accelerator::Accelerator;
use crate::alloc::MemPoolRoute;
use crate::backend::Backend;
use crate::current::exchange_current_stream;
use crate::graphs::{CaptureMode, ExecutableGraph, Graphs};
use crate::stream::Stream;
use crate::types::{DriverError, DriverErrorKind, DriverResult, Error, MemPoolId, Result, StreamId};

/// Work of streams that is captured once and replayed any number of times. PyTorch: `torch.accelerator.Graph`.
///
/// While work is captured, the requests of the capturing streams get their memory from a private pool. The graph keeps
/// the memory of that pool until it is [reset](Self::reset) or dropped, because each replay uses it again.
pub struct Graph<B: Backend> {
    accelerator: &'static Accelerator<B>,
    graphs: &'static dyn Graphs<B>,
    state: State<B>,
    /// The pools whose memory the graph uses, its own first.
    pools: Vec<MemPoolId>,
}

enum State<B: Backend> {
    Empty,
    Capturing(Capture<B>),
    Ready(Box<dyn ExecutableGraph<B>>),
}

struct Capture<B: Backend> {
    stream: Stream<B>,
    number: u64,
    route: MemPoolRoute,
    /// The thread that began the capture, and its current stream before.
    thread: ThreadId,
    before: StreamId,
}

impl<B: Backend> Graph<B> {
    /// Makes an empty graph.
    ///
    /// # Errors
    /// [`Error::Driver`] of the kind [`Unsupported`](crate::DriverErrorKind::Unsupported) if the device has no graphs.
    pub fn new(accelerator: &'static Accelerator<B>) -> Result<Self> {
        let graphs = accelerator.backend().graphs().ok_or_else(|| Error::Driver {
            device: accelerator.device(),
            source: DriverError::refused(DriverErrorKind::Unsupported, "Graph::new", "this device has no graphs"),
        })?;
        Ok(Self { accelerator, graphs, state: State::Empty, pools: Vec::new() })
    }

    /// Begins to capture the work of a stream, which becomes the current stream of this thread. Requests of the
    /// capturing streams go to `pool`; `None`: to a pool of the graph's own. Graphs that share a pool may overwrite one
    /// another's memory, so they must be replayed in the order in which they were captured. PyTorch:
    /// `Graph.capture_begin`.
    ///
    /// # Errors
    /// * [`Error::Graph`] if the graph is not empty.
    /// * [`Error::MemPool`] for [`MemPoolId::DEFAULT`].
    /// * [`Error::DeviceMismatch`] for a stream of another device.
    /// * [`Error::Driver`], in particular for a stream that captures already.
    pub fn capture_begin(&mut self, stream: Stream<B>, pool: Option<MemPoolId>, mode: CaptureMode) -> Result<()> {
        if !matches!(self.state, State::Empty) {
            return Err(self.error("has been captured already: call reset first, or use another graph"));
        }
        stream.check(self.accelerator.instance())?;
        let pool = pool.unwrap_or_else(MemPoolId::next_graph);
        let allocator = self.accelerator.allocator();
        allocator.hold_pool(pool, None)?;
        let device = self.accelerator.device();
        let begun = device.driver_result(self.begin(stream, mode));
        let number = begun.inspect_err(|_| allocator.let_pool_go(pool))?;
        let route = allocator.capture_begun(number, mode, pool);
        self.pools = vec![pool];
        let before = exchange_current_stream(&self.accelerator.instance(), stream.id());
        self.state = State::Capturing(Capture { stream, number, route, thread: thread::current().id(), before });
        Ok(())
    }

    fn begin(&self, stream: Stream<B>, mode: CaptureMode) -> DriverResult<u64> {
        self.accelerator.captures().begins();
        self.begin_in_driver(stream, mode).inspect_err(|_| {
            self.accelerator.captures().ended();
            self.accelerator.allocator().do_what_waits_for_captures(); // the stream may have captured for a moment
        })
    }

    fn begin_in_driver(&self, stream: Stream<B>, mode: CaptureMode) -> DriverResult<u64> {
        self.graphs.begin(stream.native(), mode)?;
        let number = self.graphs.capture_of(stream.native());
        let number = number.and_then(|number| {
            number.ok_or_else(|| {
                DriverError::refused(DriverErrorKind::Other, "Graph::capture_begin", "the stream does not capture")
            })
        });
        number.inspect_err(|_| {
            let _ = self.graphs.end(stream.native());
        })
    }

    /// Ends the capture. On the thread that began it, the stream that was the current one before becomes current again;
    /// the current stream of another thread stays. PyTorch: `Graph.capture_end`.
    ///
    /// # Errors
    /// [`Error::Graph`] if no capture is underway. [`Error::Driver`] if the capture was broken; the graph is empty
    /// then, and the memory of its pool is released.
    pub fn capture_end(&mut self) -> Result<()> {
        let State::Capturing(capture) = std::mem::replace(&mut self.state, State::Empty) else {
            return Err(self.error("does not capture: call capture_begin first"));
        };
        let Capture { stream, number, route, thread, before } = capture;
        let ended = self.graphs.end(stream.native());
        self.accelerator.captures().ended();
        if thread == thread::current().id() {
            exchange_current_stream(&self.accelerator.instance(), before);
        }
        self.pools = self.accelerator.allocator().capture_ended(number, route);
        match self.accelerator.device().driver_result(ended) {
            Ok(graph) => {
                self.state = State::Ready(graph);
                Ok(())
            }
            Err(error) => {
                self.release_pools();
                Err(error)
            }
        }
    }

    /// Submits the captured work to a stream. PyTorch: `Graph.replay`.
    ///
    /// # Errors
    /// [`Error::Graph`] if nothing was captured. [`Error::MemPool`] if the graph's pool is paused.
    /// [`Error::DeviceMismatch`] for a stream of another device. [`Error::Driver`]; a part of the graph may have run
    /// then, but nothing of it runs after the call.
    ///
    /// # Safety
    /// * All memory outside of the graph's pools that the captured work uses is still allocated, and stays so until the
    ///   stream has done the work. None of it is [paused](crate::MemPool::pause), nor begins to be during the call:
    ///   only for the graph's own pools is this checked.
    /// * No other thread copied to or from memory of the host on a captured stream while its capture began: on the host
    ///   backend, the graph may have that copy, of memory that was lent for one call.
    /// * Work on other streams that uses the same memory, or memory of the same pools, is ordered before or after it.
    /// * Nobody relies on the contents of memory that a pool of the graph with
    ///   [`use_on_oom`](crate::MemPoolOptions::use_on_oom) has lent to a request outside of the pool: as in PyTorch, it
    ///   may be memory that the replay writes.
    /// * Once the graph is reset or dropped, the memory of its pools goes back in the next call, on any thread, that
    ///   gives memory back to the driver. The work is done before. Such calls are
    ///   [`empty_cache`](crate::CachingAllocator::empty_cache),
    ///   [`empty_pool_cache`](crate::CachingAllocator::empty_pool_cache), [`MemPool::trim`](crate::MemPool::trim), the
    ///   drop of a guard that [trims](crate::MemPoolOptions::trims), the drop of a `MemPool`, and a request that finds
    ///   no memory.
    pub unsafe fn replay(&self, stream: Stream<B>) -> Result<()> {
        let graph = self.ready()?;
        stream.check(self.accelerator.instance())?;
        let allocator = self.accelerator.allocator();
        let _uses = self.pools.iter().map(|pool| allocator.begin_use_of_pool(*pool)).collect::<Result<Vec<_>>>()?;
        // SAFETY: The graph keeps the memory of its pools, and they are not paused meanwhile. The caller answers for
        // all other memory.
        self.accelerator.device().driver_result(unsafe { graph.launch(stream.native()) })
    }

    /// Prepares the next replay on this stream, so that it costs less.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub fn upload(&self, stream: Stream<B>) -> Result<()> {
        let graph = self.ready()?;
        stream.check(self.accelerator.instance())?;
        self.accelerator.device().driver_result(graph.upload(stream.native()))
    }

    /// Makes the graph empty. Memory of its pools that nothing else uses goes back to the driver with the next call
    /// that gives memory back, such as [`empty_cache`](crate::CachingAllocator::empty_cache). [Replays](Self::replay)
    /// must be done by then. A capture underway is given up. PyTorch: `Graph.reset`.
    ///
    /// # Errors
    /// [`Error::Driver`] if a capture was underway and could not be ended. The graph is empty all the same.
    pub fn reset(&mut self) -> Result<()> {
        let ended = if matches!(self.state, State::Capturing(_)) { self.capture_end() } else { Ok(()) };
        self.state = State::Empty;
        self.release_pools();
        ended
    }

    /// The pool that the graph captured with, to be shared with other graphs. PyTorch: `Graph.pool`.
    pub fn pool(&self) -> Option<MemPoolId> {
        self.pools.first().copied()
    }

    fn ready(&self) -> Result<&dyn ExecutableGraph<B>> {
        match &self.state {
            State::Ready(graph) => Ok(&**graph),
            _ => Err(self.error("has not been captured: call capture_begin and capture_end first")),
        }
    }

    fn release_pools(&mut self) {
        for pool in self.pools.drain(..) {
            self.accelerator.allocator().release_pool_from_graph(pool);
        }
    }

    fn error(&self, problem: &'static str) -> Error {
        Error::Graph { device: self.accelerator.device(), problem }
    }
}

impl<B: Backend> Drop for Graph<B> {
    fn drop(&mut self) {
        let _ = self.reset();
    }
}

impl<B: Backend> fmt::Debug for Graph<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Empty => "empty",
            State::Capturing(_) => "capturing",
            State::Ready(_) => "ready",
        };
        write!(f, "Graph {{ {}, {state}, pools: {:?} }}", self.accelerator.device(), self.pools)
    }
}
