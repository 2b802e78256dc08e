use std::collections::HashMap;

use accelerator_conformance::Controls;
use accelerator_core::{CaptureMode, Error, Graph};

use super::outcome::ReplayError;
use super::replayer::Replayer;
use crate::trace::{CaptureOp, PoolName};

/// The graphs of a trace.
pub(super) struct Captures<B: Controls> {
    /// By their numbers, which stay taken after a reset.
    graphs: HashMap<u64, Graph<B>>,
    /// The graphs that are being captured, by the streams on which that began.
    underway: HashMap<u32, u64>,
}

impl<B: Controls> Captures<B> {
    pub(super) fn new() -> Self {
        Self { graphs: HashMap::new(), underway: HashMap::new() }
    }

    /// Gives up all captures, and drops the graphs.
    pub(super) fn end(&mut self) {
        self.underway.clear();
        self.graphs.clear();
    }

    fn reset(&mut self, number: u64) -> Result<(), ReplayError> {
        let is_captured = !self.underway.values().any(|underway| *underway == number);
        let graph = self.graphs.get_mut(&number).filter(|_| is_captured);
        Ok(graph.ok_or(ReplayError::NoGraph(number))?.reset()?)
    }
}

impl<B: Controls> Replayer<B> {
    pub(super) fn capture_op(&mut self, op: &CaptureOp) -> Result<(), ReplayError> {
        let accelerator = self.accelerator;
        match *op {
            CaptureOp::Current { stream } => _ = accelerator.set_current_stream(self.stream(stream)?)?,
            CaptureOp::Launch { stream } => {
                let stream = self.stream(stream)?;
                let launched = accelerator.backend().launch(stream.native());
                launched.map_err(|source| Error::Driver { device: accelerator.device(), source })?;
            }
            CaptureOp::Wait { stream, other } => self.stream(stream)?.wait_stream(self.stream(other)?)?,
            CaptureOp::Begin { stream, graph, pool, mode } => self.begin_capture(stream, graph, pool, mode)?,
            CaptureOp::End { stream } => {
                let number = self.captures.underway.remove(&stream).ok_or(ReplayError::NoCapture(stream))?;
                self.captures.graphs.get_mut(&number).ok_or(ReplayError::NoGraph(number))?.capture_end()?;
            }
            CaptureOp::Reset { graph } => self.captures.reset(graph)?,
        }
        Ok(())
    }

    fn begin_capture(
        &mut self,
        stream: u32,
        number: u64,
        pool: PoolName,
        mode: CaptureMode,
    ) -> Result<(), ReplayError> {
        if self.captures.graphs.contains_key(&number) {
            return Err(ReplayError::GraphCaptured(number));
        }
        let mut graph = Graph::new(self.accelerator)?;
        graph.capture_begin(self.stream(stream)?, Some(pool.id()), mode)?;
        self.captures.graphs.insert(number, graph);
        self.captures.underway.insert(stream, number);
        Ok(())
    }
}
