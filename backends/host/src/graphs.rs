//! Graphs: work that is kept, and submitted to a stream as often as the graph is launched.

use std::sync::{Arc, Mutex};
use std::{fmt, mem};

use accelerator_core::backend_kit::{Captures, Health, lock};
use accelerator_core::{CaptureMode, DriverResult, ExecutableGraph, Graphs};

use crate::access::{Access, Touched};
use crate::host::Host;
use crate::process;
use crate::worker::{HostStream, Recording, panics};

/// Captured work, which can run many times, and what it touches.
pub(crate) struct Node {
    touched: Vec<Touched>,
    work: Box<dyn Fn() + Send + Sync>,
}

impl Node {
    pub(crate) fn new(touched: &[Touched], work: impl Fn() + Send + Sync + 'static) -> Self {
        Self { touched: touched.to_vec(), work: Box::new(work) }
    }
}

impl Drop for Node {
    /// Drops the closure, whose destructors may panic: where captures end, and on the threads of streams, nothing may.
    fn drop(&mut self) {
        panics(|| drop(mem::replace(&mut self.work, Box::new(|| ()))));
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {{ touched: {:?} }}", self.touched)
    }
}

#[derive(Debug)]
struct HostGraph {
    health: Health,
    captures: Arc<Captures<Node>>,
    access: Arc<Access>,
    /// Each follows those that it depends on.
    nodes: Arc<[Node]>,
    /// The end of the last launch.
    last: Mutex<Option<Recording>>,
}

// SAFETY: `Host` keeps captured work instead of submitting it. `end` returns it in an order in which each piece follows
// those that it depends on.
unsafe impl Graphs<Host> for Host {
    fn begin(&self, stream: &HostStream, _mode: CaptureMode) -> DriverResult<()> {
        self.health.check()?;
        self.captures.begin(stream.id())
    }

    fn end(&self, stream: &HostStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        self.health.check()?;
        let nodes = self.captures.end(stream.id())?;
        Ok(Box::new(HostGraph {
            health: process::health(),
            captures: Arc::clone(&self.captures),
            access: Arc::clone(&self.access),
            nodes: nodes.into_iter().map(|node| node.work).collect(),
            last: Mutex::default(),
        }))
    }

    fn capture_of(&self, stream: &HostStream) -> DriverResult<Option<u64>> {
        self.health.check()?;
        Ok(self.captures.capture_of(stream.id()))
    }

    fn mark(&self, stream: &HostStream) -> DriverResult<Option<u64>> {
        self.health.check()?;
        Ok(self.captures.mark(stream.id()))
    }

    fn precede(&self, marks: &[u64], stream: &HostStream) -> DriverResult<Vec<bool>> {
        self.health.check()?;
        Ok(self.captures.precede(marks, stream.id()))
    }
}

// SAFETY: A launch is one job of the stream, which does the nodes in their order, after the job of the launch before.
unsafe impl ExecutableGraph<Host> for HostGraph {
    unsafe fn launch(&self, stream: &HostStream) -> DriverResult<()> {
        self.health.check()?;
        self.captures.refuse_captured(stream.id(), "launch")?;
        // Memory may have been mapped elsewhere since the last launch.
        let bytes: Vec<_> = self.nodes.iter().map(|node| self.access.behind(&node.touched)).collect();
        let (nodes, access) = (Arc::clone(&self.nodes), Arc::clone(&self.access));
        let work = bytes.into_iter().enumerate().map(move |(at, bytes)| {
            let (nodes, access) = (Arc::clone(&nodes), Arc::clone(&access));
            move || access.run(&bytes, || (nodes[at].work)())
        });
        let mut last = lock(&self.last); // until the launch is submitted, so that launches have one order
        if let Some(last) = last.take() {
            stream.wait_for(last);
        }
        stream.submit_all(work);
        *last = Some(stream.record());
        Ok(())
    }
}
