//! Captures of the last stream.

use accelerator_core::{CaptureMode, Graph};

use super::bytes::Bytes;
use super::machine::{Machine, STREAMS};

impl Machine {
    /// Whether the stream with this number is captured now.
    pub(super) fn captures(&self, stream: usize) -> bool {
        stream == STREAMS - 1 && self.capture.is_some()
    }

    pub(super) fn begin_or_end_capture(&mut self, bytes: &mut Bytes, injected: u64) {
        if self.capture.is_some() {
            return self.end_capture(injected);
        }
        let mode = bytes.one_of(&[CaptureMode::default(), CaptureMode::ThreadLocal, CaptureMode::Relaxed]);
        let pool = bytes.flag().then(|| bytes.one_of(&self.pools));
        let mut graph = Graph::new(self.accelerator).unwrap();
        match graph.capture_begin(self.streams[STREAMS - 1], pool, mode) {
            Ok(()) => self.capture = Some(graph),
            Err(error) => self.allow(Some(error), injected),
        }
    }

    pub(super) fn end_capture(&mut self, injected: u64) {
        let Some(mut graph) = self.capture.take() else { return };
        match graph.capture_end() {
            Ok(()) => self.graphs.push(graph),
            Err(error) => self.allow(Some(error), injected),
        }
    }

    pub(super) fn drop_graph(&mut self, bytes: &mut Bytes) {
        if !self.graphs.is_empty() {
            self.graphs.swap_remove(bytes.below(self.graphs.len()));
        }
    }
}
