//! Graphs of any backend.

use std::fmt;

use accelerator_core::{Backend, CaptureMode, DriverErrorKind, DriverResult, ExecutableGraph, Graphs};

use super::AnyBackend;
use super::face::Erased;
use super::handles::AnyStream;
use crate::calls::{Call, failure};
use crate::progress;

impl<B: Backend> Erased<B> {
    fn inner_graphs(&self, call: Call) -> DriverResult<&dyn Graphs<B>> {
        let none = failure(call, DriverErrorKind::Unsupported, "the backend has no graphs");
        self.inner().graphs().ok_or(none)
    }
}

/// A graph of the backend `B`.
struct AnyGraph<B: Backend>(Box<dyn ExecutableGraph<B>>);

impl<B: Backend> fmt::Debug for AnyGraph<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: Every call goes to the inner backend's graphs, whose contract is the same.
unsafe impl<B: Backend> Graphs<AnyBackend> for Erased<B> {
    fn begin(&self, stream: &AnyStream, mode: CaptureMode) -> DriverResult<()> {
        let _inside = progress::inside(Call::Begin);
        self.inner_graphs(Call::Begin)?.begin(stream.of::<B>()?, mode)
    }

    fn end(&self, stream: &AnyStream) -> DriverResult<Box<dyn ExecutableGraph<AnyBackend>>> {
        let _inside = progress::inside(Call::End);
        let graph = self.inner_graphs(Call::End)?.end(stream.of::<B>()?)?;
        Ok(Box::new(AnyGraph(graph)))
    }

    fn capture_of(&self, stream: &AnyStream) -> DriverResult<Option<u64>> {
        let _inside = progress::inside(Call::CaptureOf);
        self.inner_graphs(Call::CaptureOf)?.capture_of(stream.of::<B>()?)
    }

    fn mark(&self, stream: &AnyStream) -> DriverResult<Option<u64>> {
        let _inside = progress::inside(Call::Mark);
        self.inner_graphs(Call::Mark)?.mark(stream.of::<B>()?)
    }

    fn precede(&self, marks: &[u64], stream: &AnyStream) -> DriverResult<Vec<bool>> {
        let _inside = progress::inside(Call::Precede);
        self.inner_graphs(Call::Precede)?.precede(marks, stream.of::<B>()?)
    }
}

// SAFETY: As above.
unsafe impl<B: Backend> ExecutableGraph<AnyBackend> for AnyGraph<B> {
    unsafe fn launch(&self, stream: &AnyStream) -> DriverResult<()> {
        let _inside = progress::inside(Call::Launch);
        let stream = stream.of::<B>()?;
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.launch(stream) }
    }

    fn upload(&self, stream: &AnyStream) -> DriverResult<()> {
        let _inside = progress::inside(Call::Upload);
        self.0.upload(stream.of::<B>()?)
    }
}
