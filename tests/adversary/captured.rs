//! Graphs of a program.

use std::sync::Arc;

use accelerator_core::backend_kit::lock;
use accelerator_core::{CaptureMode, Graph, Result, Stream};

use super::device::Adversary;
use super::machine::Machine;
use super::owned::Owned;
use super::program::chosen;

/// A graph, and the buffer outside of its pool that each replay writes.
pub(crate) struct Captured {
    graph: Graph<Adversary>,
    output: Owned,
    value: u8,
}

impl Machine {
    /// Captures work that fills memory of the graph on one stream, and copies it to a buffer on another. Then it frees
    /// that memory, which later work of the same capture may get, and must not before the copy.
    pub(crate) fn capture(&mut self, [stream, side]: [usize; 2], bytes: u64, joins: bool, value: u8) {
        let of_captures = |number: usize| self.of_captures.map_or(self.streams[number], |streams| streams[number % 2]);
        let [stream, side] = [stream, side].map(of_captures);
        let bytes = bytes.min(300_000);
        let Some(mut output) = self.allocated(bytes, stream) else { return };
        let made = Graph::new(self.device);
        let Some(mut graph) = self.done(made) else { return };
        let capturing = Arc::clone(&self.capturing);
        let _capturing = lock(&capturing);
        let begun = graph.capture_begin(stream, None, CaptureMode::Relaxed);
        if self.done(begun).is_none() {
            return;
        }
        let worked = self.captured_work(&mut output, [stream, side], joins, value);
        let ended = graph.capture_end();
        // Without some of the work, the streams may not have joined, so the end may fail, too.
        if self.done(worked).and_then(|()| self.done(ended)).is_some() {
            self.graphs.push(Captured { graph, output, value });
        }
    }

    fn captured_work(
        &self,
        output: &mut Owned,
        [stream, side]: [Stream<Adversary>; 2],
        joins: bool,
        value: u8,
    ) -> Result<()> {
        let bytes = output.buffer.len();
        let inside = Owned::new(self.device.allocate(bytes, stream)?, None, &self.tally);
        self.handed_out(&inside, stream);
        inside.kernel(Some(value), stream)?;
        side.wait_stream(stream)?;
        output.buffer.copy_from(&inside.buffer, side)?;
        drop(inside);
        if joins {
            stream.wait_stream(side)?;
        }
        let other = Owned::new(self.device.allocate(bytes, stream)?, None, &self.tally);
        self.handed_out(&other, stream);
        other.kernel(Some(value ^ 0xFF), stream)?;
        stream.wait_stream(side)
    }

    pub(crate) fn replay(&mut self, nth: usize, stream: usize) {
        let Some(nth) = chosen(nth, self.graphs.len()) else { return };
        let (output, stream) = (&self.graphs[nth].output, self.streams[stream]);
        if self.is_paused(output) || !self.ordered(output, stream, true) {
            return;
        }
        // SAFETY: The output lives as long as the graph, and is not paused. The stream comes after all other work on
        // it, and so after the last launch, which wrote it.
        #[allow(unsafe_code, reason = "replays a graph")]
        let replayed = unsafe { self.graphs[nth].graph.replay(stream) };
        if self.done(replayed).is_some() {
            let Captured { output, value, .. } = &mut self.graphs[nth];
            output.set(Some(*value));
            let recorded = output.buffer.record_use(stream);
            self.done(recorded);
        }
    }

    /// Drops a graph, whose work must be done by then.
    pub(crate) fn reset_graph(&mut self, nth: usize) {
        let Some(nth) = chosen(nth, self.graphs.len()) else { return };
        let synchronized = self.synchronized();
        if self.done(synchronized).is_none() {
            return;
        }
        let Captured { mut graph, output, .. } = self.graphs.swap_remove(nth);
        if !self.is_paused(&output) {
            self.check(&output, self.streams[0]);
        }
        let reset = graph.reset();
        self.done(reset);
    }
}

impl Captured {
    /// The buffer that each replay writes.
    pub(crate) fn output_mut(&mut self) -> &mut Owned {
        &mut self.output
    }
}
