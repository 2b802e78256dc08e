//! Graphs: command buffers, and between them the copies from and to the host, which command buffers cannot contain.
#![allow(unsafe_code)] // calls into the driver

use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{GraphNode, lock};
use accelerator_core::{CaptureMode, DriverError, DriverErrorKind, DriverResult, ExecutableGraph, Graphs};

use crate::command_buffer::{CommandBuffer, CommandBuffers};
use crate::opencl::OpenCl;
use crate::stream::{Command, OpenClStream};
use crate::work::Work;

// SAFETY: `OpenClStream::run` keeps captured work instead of submitting it. A launch waits for the earlier work of its
// stream, and the later work waits for it. The queue of the graph is in order, and so is `Captures::end`.
unsafe impl Graphs<OpenCl> for OpenCl {
    fn begin(&self, stream: &OpenClStream, _mode: CaptureMode) -> DriverResult<()> {
        stream.captures.begin(stream.number)
    }

    fn end(&self, stream: &OpenClStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let nodes = stream.captures.end(stream.number)?;
        let none = || DriverError::refused(DriverErrorKind::Unsupported, "end", "the device has no command buffers");
        Ok(Box::new(OpenClGraph::new(self, self.command_buffers.ok_or_else(none)?, nodes)?))
    }

    fn capture_of(&self, stream: &OpenClStream) -> DriverResult<Option<u64>> {
        Ok(stream.captures.capture_of(stream.number))
    }

    fn mark(&self, stream: &OpenClStream) -> DriverResult<Option<u64>> {
        Ok(stream.captures.mark(stream.number))
    }

    fn precede(&self, marks: &[u64], stream: &OpenClStream) -> DriverResult<Vec<bool>> {
        Ok(stream.captures.precede(marks, stream.number))
    }
}

#[derive(Debug)]
struct OpenClGraph {
    steps: Vec<Step>,
    /// Keeps kernels and their memory objects.
    _nodes: Vec<GraphNode<Work>>,
    /// Whether it may be launched again before its last launch is done.
    may_repeat: bool,
    /// The end of the last launch. It is locked until a launch is submitted, so that launches have one order.
    last: Mutex<Option<Arc<Command>>>,
    /// A queue of its own, since command buffers run only in queues like that for which they were recorded.
    own: OpenClStream,
}

#[derive(Debug)]
enum Step {
    OnDevice(CommandBuffer),
    /// A copy from or to the host.
    WithHost(Work),
}

impl OpenClGraph {
    fn new(opencl: &OpenCl, calls: CommandBuffers, nodes: Vec<GraphNode<Work>>) -> DriverResult<Self> {
        let (own, last) = (opencl.plain_stream()?, Mutex::new(None));
        let mut graph = Self { steps: Vec::new(), _nodes: Vec::new(), may_repeat: calls.may_repeat, last, own };
        for node in &nodes {
            if matches!(node.work, Work::Read { .. } | Work::Write { .. }) {
                graph.steps.push(Step::WithHost(node.work.clone()));
                continue;
            }
            if !matches!(graph.steps.last(), Some(Step::OnDevice(_))) {
                graph.steps.push(Step::OnDevice(calls.create(graph.own.raw())?));
            }
            if let Some(Step::OnDevice(commands)) = graph.steps.last() {
                // SAFETY: Who launches the graph promises valid memory, and nothing is finalized yet.
                unsafe { node.work.add_to(commands) }?;
            }
        }
        for step in &graph.steps {
            if let Step::OnDevice(commands) = step {
                commands.finalize()?;
            }
        }
        graph._nodes = nodes;
        Ok(graph)
    }

    /// Submits all steps to the graph's own queue, and returns their end.
    ///
    /// # Safety
    /// * As for [`ExecutableGraph::launch`].
    unsafe fn submit(&self) -> DriverResult<Arc<Command>> {
        for step in &self.steps {
            match step {
                Step::OnDevice(commands) => self.own.submit("clEnqueueCommandBufferKHR", |_| {
                    // SAFETY: The commands are finalized, and `launch` waits for their last work if it must. The caller
                    // promises valid memory.
                    unsafe { commands.enqueue() }
                }),
                // SAFETY: The caller promises valid memory.
                Step::WithHost(work) => self.own.submit(work.call(), |queue| unsafe { work.enqueue(queue) }),
            }?;
        }
        self.own.marker()
    }
}

// SAFETY: As for `Graphs`. All launches go to one queue, which is in order.
unsafe impl ExecutableGraph<OpenCl> for OpenClGraph {
    unsafe fn launch(&self, stream: &OpenClStream) -> DriverResult<()> {
        stream.refuse_captured("clEnqueueCommandBufferKHR")?;
        let mut last = lock(&self.last);
        if let Some(done) = last.as_ref().filter(|_| !self.may_repeat) {
            done.await_end()?; // its own stream reports failures
        }
        self.own.wait_for(&*stream.marker()?)?;
        // SAFETY: The caller promises the same.
        let done = unsafe { self.submit() };
        let done = done.and_then(|done| stream.wait_for(&done).map(|()| done));
        *last = Some(done.inspect_err(|_| {
            // OpenCL does not take commands back. What was submitted must be done before the caller frees its memory.
            let _ = self.own.finish();
        })?);
        Ok(())
    }
}

impl Drop for OpenClGraph {
    fn drop(&mut self) {
        let _ = self.own.finish(); // some drivers do not keep command buffers until they are done
    }
}
