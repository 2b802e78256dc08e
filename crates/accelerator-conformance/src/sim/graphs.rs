//! Captures of the simulated device.

use std::sync::Arc;

use accelerator_core::backend_kit::Captures;
use accelerator_core::{CaptureMode, DriverErrorKind, DriverResult, ExecutableGraph, Graphs};

use super::{Sim, SimStream};
use crate::calls::{Call, Calls, failure};

impl Sim {
    /// A copy or a fill. There are no bytes, so it can only be captured.
    pub(super) fn work(&self, call: Call, stream: &SimStream) -> DriverResult<()> {
        match self.captures.record(stream.number, || ()) {
            true => Ok(()),
            false => Err(failure(call, DriverErrorKind::Unsupported, "the simulated device has addresses only")),
        }
    }
}

/// A graph whose work has no effect.
#[derive(Debug)]
struct SimGraph {
    calls: Arc<Calls>,
    captures: Arc<Captures<()>>,
}

// SAFETY: No work has any effect, so it is done whenever it is due.
unsafe impl Graphs<Self> for Sim {
    fn begin(&self, stream: &SimStream, _mode: CaptureMode) -> DriverResult<()> {
        self.calls.count(Call::Begin);
        self.captures.begin(stream.number)
    }

    fn end(&self, stream: &SimStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        self.calls.count(Call::End);
        self.captures.end(stream.number)?;
        Ok(Box::new(SimGraph { calls: Arc::clone(&self.calls), captures: Arc::clone(&self.captures) }))
    }

    fn capture_of(&self, stream: &SimStream) -> DriverResult<Option<u64>> {
        self.calls.count(Call::CaptureOf);
        Ok(self.captures.capture_of(stream.number))
    }

    fn mark(&self, stream: &SimStream) -> DriverResult<Option<u64>> {
        self.calls.count(Call::Mark);
        Ok(self.captures.mark(stream.number))
    }

    fn precede(&self, marks: &[u64], stream: &SimStream) -> DriverResult<Vec<bool>> {
        self.calls.count(Call::Precede);
        Ok(self.captures.precede(marks, stream.number))
    }
}

// SAFETY: As above.
unsafe impl ExecutableGraph<Sim> for SimGraph {
    unsafe fn launch(&self, stream: &SimStream) -> DriverResult<()> {
        self.calls.count(Call::Launch);
        self.captures.refuse_captured(stream.number, Call::Launch.name())
    }

    fn upload(&self, _stream: &SimStream) -> DriverResult<()> {
        self.calls.count(Call::Upload);
        Ok(())
    }
}
