//! Graphs: captured work, which each launch submits again.
#![allow(unsafe_code, reason = "the traits are unsafe to implement")]

use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::lock;
use accelerator_core::{CaptureMode, DriverResult, ExecutableGraph, Graphs};
use sim_engine::{Face, Operation, Position, Work};

use super::clock::Clock;
use super::failures::Failures;
use super::shadow::Touch;
use super::state::Session;
use super::{Adversary, Lane};

/// A piece of captured work.
#[derive(Clone)]
pub(super) struct Captured {
    pub(super) what: &'static str,
    pub(super) work: Vec<Work>,
    pub(super) touches: Vec<Touch>,
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {:?}", self.what, self.touches)
    }
}

/// A graph that can be launched.
#[derive(Debug)]
struct Graph {
    device: usize,
    failures: Arc<Failures>,
    launches: Mutex<Launches>,
}

#[derive(Debug)]
struct Launches {
    /// Captured work in an order that its dependencies permit.
    work: Vec<Captured>,
    /// The end of the last launch, which the next one comes after.
    last: Option<(Position, Clock)>,
}

// SAFETY: Captured work is kept, and runs only when a launch submits it.
unsafe impl Graphs<Self> for Adversary {
    fn begin(&self, stream: &Lane, _: CaptureMode) -> DriverResult<()> {
        self.enter("begin")?;
        self.captures.begin(stream.number as u64)?;
        Session::new().shadows[self.number].begin_capture();
        Ok(())
    }

    fn end(&self, stream: &Lane) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let failed = self.enter("end");
        let nodes = self.captures.end(stream.number as u64);
        Session::new().shadows[self.number].end_capture();
        failed?;
        let work = nodes?.into_iter().map(|node| node.work).collect();
        let launches = Mutex::new(Launches { work, last: None });
        Ok(Box::new(Graph { device: self.number, failures: Arc::clone(&self.failures), launches }))
    }

    fn capture_of(&self, stream: &Lane) -> DriverResult<Option<u64>> {
        self.enter("capture_of")?;
        Ok(self.captures.capture_of(stream.number as u64))
    }

    fn mark(&self, stream: &Lane) -> DriverResult<Option<u64>> {
        self.enter("mark")?;
        Ok(self.captures.mark(stream.number as u64))
    }

    fn precede(&self, marks: &[u64], stream: &Lane) -> DriverResult<Vec<bool>> {
        self.enter("precede")?;
        Ok(self.captures.precede(marks, stream.number as u64))
    }
}

// SAFETY: As above. One stream does the work in order, after the last launch.
unsafe impl ExecutableGraph<Adversary> for Graph {
    unsafe fn launch(&self, stream: &Lane) -> DriverResult<()> {
        self.failures.enter("launch")?;
        let mut launches = lock(&self.launches);
        let mut session = Session::new();
        if let Some((position, clock)) = &launches.last {
            session.shadows[self.device].wait(stream.number, false, clock);
            session.engine_mut().submit(stream.handle, Operation::new(Work::Nothing).after([*position]));
        }
        for captured in &launches.work {
            session.shadows[self.device].submit(stream.number, false, captured.what, &captured.touches);
            for work in &captured.work {
                session.engine_mut().submit(stream.handle, Operation::new(work.clone()));
            }
        }
        let end = session.engine().end(stream.handle);
        launches.last = Some((end, session.shadows[self.device].now(stream.number, false)));
        Ok(())
    }
}
