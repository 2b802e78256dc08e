//! Graphs, with injected faults.
#![allow(unsafe_code)] // the traits of graphs are unsafe to implement

use std::fmt;
use std::sync::Arc;

use accelerator_core::{Backend, CaptureMode, DriverErrorKind, DriverResult, ExecutableGraph, Graphs};

use super::Faulty;
use super::entrance::Entrance;
use super::lanes::{FaultyStream, Lanes, Work};
use crate::calls::{Call, failure};

impl<B: Backend> Faulty<B> {
    fn inner_graphs(&self, call: Call) -> DriverResult<&dyn Graphs<B>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the backend has no graphs");
        self.inner.graphs().ok_or(none)
    }
}

/// A graph of the inner backend, whose launches can fail or be late.
struct FaultyGraph<B: Backend> {
    graph: Arc<dyn ExecutableGraph<B>>,
    inner: Arc<B>,
    entrance: Arc<Entrance>,
    lanes: Arc<Lanes<B>>,
}

impl<B: Backend> fmt::Debug for FaultyGraph<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyGraph {{ inner: {:?} }}", self.graph)
    }
}

// SAFETY: Captures and launches are those of the inner backend, whose contract is the same. Work from before a capture
// goes to the inner backend before its begin, so that it is not captured.
unsafe impl<B: Backend> Graphs<Self> for Faulty<B> {
    fn begin(&self, stream: &FaultyStream<B>, mode: CaptureMode) -> DriverResult<()> {
        self.entrance.admit(Call::Begin)?;
        self.lanes.submit_waiting(&self.inner, stream);
        self.inner_graphs(Call::Begin)?.begin(stream.inner(), mode)?;
        self.lanes.capture_begun();
        Ok(())
    }

    fn end(&self, stream: &FaultyStream<B>) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let injected = self.entrance.admit(Call::End);
        let captures = self.inner.is_capturing(stream.inner()).unwrap_or(true);
        let ended = self.inner_graphs(Call::End)?.end(stream.inner());
        if captures {
            self.lanes.capture_ended();
        }
        injected?;
        let (inner, entrance, lanes) = (&self.inner, &self.entrance, &self.lanes);
        Ok(Box::new(FaultyGraph {
            graph: ended?.into(),
            inner: Arc::clone(inner),
            entrance: Arc::clone(entrance),
            lanes: Arc::clone(lanes),
        }))
    }

    fn capture_of(&self, stream: &FaultyStream<B>) -> DriverResult<Option<u64>> {
        self.entrance.admit(Call::CaptureOf)?;
        self.inner_graphs(Call::CaptureOf)?.capture_of(stream.inner())
    }

    fn mark(&self, stream: &FaultyStream<B>) -> DriverResult<Option<u64>> {
        self.entrance.admit(Call::Mark)?;
        self.inner_graphs(Call::Mark)?.mark(stream.inner())
    }

    fn precede(&self, marks: &[u64], stream: &FaultyStream<B>) -> DriverResult<Vec<bool>> {
        self.entrance.admit(Call::Precede)?;
        self.inner_graphs(Call::Precede)?.precede(marks, stream.inner())
    }
}

// SAFETY: As above. A launch is work of its stream like a copy.
unsafe impl<B: Backend> ExecutableGraph<Faulty<B>> for FaultyGraph<B> {
    unsafe fn launch(&self, stream: &FaultyStream<B>) -> DriverResult<()> {
        self.entrance.admit(Call::Launch)?;
        self.lanes.submit(&self.inner, stream, Work::Launch(Arc::clone(&self.graph)))
    }

    fn upload(&self, stream: &FaultyStream<B>) -> DriverResult<()> {
        self.entrance.admit(Call::Upload)?;
        self.graph.upload(stream.inner())
    }
}
