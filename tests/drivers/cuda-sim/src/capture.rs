//! Stream capture: work becomes part of a graph instead of happening.

use sim_engine::Operation;

use crate::code::{Code, Outcome};
use crate::graph::{EdgeData, Graph, Node};
use crate::state::{Driver, Handle};
use crate::stream::Kind;
use crate::thread;

pub(crate) struct Capture {
    /// The stream in which it began, and in which it must end.
    origin: Handle,
    thread: u64,
    mode: u32,
    invalidated: bool,
    /// The graph that it builds.
    graph: Handle,
}

/// The position of a stream or an event in a capture.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) capture: u64,
    /// The nodes that the next one depends on, by their places in the graph.
    last: Vec<usize>,
}

/// The nodes that the next one of a stream depends on, as arrays for the program.
#[derive(Default)]
pub(crate) struct Reported {
    pub(crate) nodes: Vec<Handle>,
    pub(crate) edges: Vec<EdgeData>,
}

/// `CUstreamCaptureStatus`
const NOT_CAPTURING: u32 = 0;
pub(crate) const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

impl Driver {
    fn captured(&self, stream: Handle) -> Option<&Captured> {
        self.state_of(stream).ok()?.captured.as_ref()
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalidated = true;
        }
    }

    /// Fails if one of a context's streams is captured, and invalidates its capture: the program cannot wait for such
    /// streams, nor for an event recorded there.
    pub(crate) fn check_uncaptured_context(&mut self, context: Handle) -> Outcome {
        let streams = self.engine.lanes.values().filter(|lane| lane.data.context == context);
        let met: Vec<u64> = streams.filter_map(|lane| Some(lane.data.captured.as_ref()?.capture)).collect();
        met.iter().for_each(|capture| self.invalidate(*capture));
        if met.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Invalidates a stream's capture because of a call that is not permitted during one.
    pub(crate) fn invalidate_capture_of(&mut self, stream: Handle) {
        if let Some(capture) = self.captured(stream).map(|captured| captured.capture) {
            self.invalidate(capture);
        }
    }

    /// Checks whether the calling thread may make calls that are unsafe during a capture, as set by
    /// `cuThreadExchangeStreamCaptureMode`. If not, the captures that forbid it are invalidated.
    pub(crate) fn check_no_capture(&mut self) -> Outcome {
        let (own, mode) = (thread::number(), thread::capture_mode());
        let forbids = |capture: &Capture| match mode {
            thread::RELAXED => false,
            _ if capture.thread == own => capture.mode != thread::RELAXED,
            _ => mode == thread::GLOBAL && capture.mode == thread::GLOBAL,
        };
        let mut outcome = Ok(());
        for capture in self.captures.values_mut().filter(|capture| forbids(capture)) {
            capture.invalidated = true;
            outcome = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        outcome
    }

    /// If this is the legacy default stream, returns the captures that it would wait for: those of blocking streams.
    fn implied_captures(&self, stream: Handle) -> Vec<u64> {
        let Some(legacy) = self.state_of(stream).ok().filter(|stream| stream.kind == Kind::Legacy) else {
            return Vec::new();
        };
        let streams = self.engine.lanes.values().map(|lane| &lane.data);
        let blocking = streams.filter(|other| other.context == legacy.context && other.kind == Kind::Blocking);
        blocking.filter_map(|other| Some(other.captured.as_ref()?.capture)).collect()
    }

    /// Fails if the stream's use would depend on such a capture, and invalidates the capture.
    fn check_implicit(&mut self, stream: Handle) -> Outcome {
        let met = self.implied_captures(stream);
        for capture in &met {
            self.invalidate(*capture);
        }
        if met.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Adds the next operation of a stream to the graph of its capture. Returns the operation if the stream is not
    /// captured.
    pub(crate) fn capture_operation(
        &mut self,
        stream: Handle,
        operation: Operation<Self>,
    ) -> Outcome<Option<Operation<Self>>> {
        self.check_implicit(stream)?;
        let handle = self.engine.new_handle();
        let Some(lane) = self.engine.lanes.get_mut(&stream) else { return Ok(Some(operation)) };
        let context = lane.data.context;
        let Some(captured) = lane.data.captured.as_mut() else { return Ok(Some(operation)) };
        let capture = self.captures.get(&captured.capture).filter(|capture| !capture.invalidated);
        let graph = self.graphs.get_mut(&capture.ok_or(Code::STREAM_CAPTURE_INVALIDATED)?.graph);
        let nodes = &mut graph.ok_or(Code::ILLEGAL_STATE)?.nodes;
        let after = std::mem::replace(&mut captured.last, vec![nodes.len()]);
        nodes.push(Node { handle, after, work: operation.work, context, is_captured: true });
        Ok(None)
    }

    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: u32) -> Outcome {
        let (capture, graph) = (self.engine.new_handle() as u64, self.engine.new_handle());
        let state = self.state_of_mut(stream)?;
        if state.kind == Kind::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if state.captured.is_some() || mode > thread::RELAXED {
            return Err(if mode > thread::RELAXED { Code::INVALID_VALUE } else { Code::ILLEGAL_STATE });
        }
        state.captured = Some(Captured { capture, last: Vec::new() });
        let thread = thread::number();
        self.captures.insert(capture, Capture { origin: stream, thread, mode, invalidated: false, graph });
        self.graphs.insert(graph, Graph::default());
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: Handle) -> Outcome<Handle> {
        let own = self.captured(stream).ok_or(Code::ILLEGAL_STATE)?.clone();
        let capture = self.captures.get_mut(&own.capture).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            capture.invalidated = true;
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        let (invalidated, graph) = (capture.invalidated, capture.graph);
        let is_elsewhere = capture.mode != thread::RELAXED && capture.thread != thread::number();
        let built = self.graphs.get(&graph).ok_or(Code::ILLEGAL_STATE)?;
        let outcome = match built.is_joined(&own.last) {
            // It ends all the same, as it does on an H200 with driver 580.
            _ if is_elsewhere => Err(Code::STREAM_CAPTURE_WRONG_THREAD),
            _ if invalidated => Err(Code::STREAM_CAPTURE_INVALIDATED),
            false => Err(Code::STREAM_CAPTURE_UNJOINED),
            true => Ok(graph),
        };
        if outcome.is_ok() {
            self.end(own.capture);
        } else {
            self.forget_capture(own.capture);
        }
        outcome
    }

    /// Drops a capture with its graph.
    fn forget_capture(&mut self, capture: u64) {
        if let Some(Capture { graph, .. }) = self.end(capture) {
            self.graphs.remove(&graph);
        }
    }

    fn end(&mut self, capture: u64) -> Option<Capture> {
        for lane in self.engine.lanes.values_mut() {
            lane.data.captured.take_if(|captured| captured.capture == capture);
        }
        self.captures.remove(&capture)
    }

    /// Drops the captures whose origin stream is gone.
    pub(crate) fn forget_lost_captures(&mut self) {
        let lost: Vec<u64> = self
            .captures
            .iter()
            .filter(|(number, capture)| {
                self.captured(capture.origin).is_none_or(|captured| captured.capture != **number)
            })
            .map(|(number, _)| *number)
            .collect();
        lost.into_iter().for_each(|capture| self.forget_capture(capture));
    }

    /// Destroying a stream also ends a capture that began in it.
    pub(crate) fn abandon_capture(&mut self, stream: Handle) {
        let Some(capture) = self.captured(stream).map(|captured| captured.capture) else { return };
        match self.captures.get(&capture).is_some_and(|capture| capture.origin == stream) {
            true => self.forget_capture(capture),
            false => self.invalidate(capture),
        }
    }

    /// Returns the `CUstreamCaptureStatus` and the number of the capture. Querying invalidates no capture.
    pub(crate) fn capture_status(&self, stream: Handle) -> Outcome<(u32, u64)> {
        if !self.implied_captures(stream).is_empty() {
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let Some(capture) = self.captured(stream).map(|captured| captured.capture) else {
            return Ok((NOT_CAPTURING, 0));
        };
        let invalidated = self.captures.get(&capture).is_none_or(|capture| capture.invalidated);
        Ok((if invalidated { INVALIDATED } else { ACTIVE }, capture))
    }

    /// Writes down, for the program, the nodes that the stream's next one depends on. Returns the graph.
    pub(crate) fn report(&mut self, stream: Handle) -> Outcome<(Handle, &Reported)> {
        let captured = self.captured(stream).ok_or(Code::ILLEGAL_STATE)?.clone();
        let graph = self.captures.get(&captured.capture).ok_or(Code::ILLEGAL_STATE)?.graph;
        let built = self.graphs.get(&graph).ok_or(Code::ILLEGAL_STATE)?;
        let nodes: Vec<Handle> = captured.last.iter().map(|place| built.nodes[*place].handle).collect();
        let edges = vec![EdgeData::default(); nodes.len()];
        let state = self.state_of_mut(stream)?;
        state.reported = Reported { nodes, edges };
        Ok((graph, &state.reported))
    }

    /// Whether a capture in progress builds this graph.
    pub(crate) fn is_being_built(&self, graph: Handle) -> bool {
        self.captures.values().any(|capture| capture.graph == graph)
    }

    pub(crate) fn is_captured(&self, stream: Handle) -> bool {
        self.captured(stream).is_some()
    }

    /// Returns the position that an event marks when it is recorded in a captured stream.
    pub(crate) fn mark_in_capture(&self, stream: Handle) -> Outcome<Option<Captured>> {
        let Some(captured) = self.captured(stream) else { return Ok(None) };
        match self.captures.get(&captured.capture).is_some_and(|capture| !capture.invalidated) {
            true => Ok(Some(captured.clone())),
            false => Err(Code::STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Makes a stream wait for an event where one of them is captured. Returns false if neither is.
    pub(crate) fn wait_in_capture(&mut self, stream: Handle, event: Handle) -> Outcome<bool> {
        let state = self.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
        let (mark, is_recorded) = (state.captured.clone(), state.recorded.is_some());
        let own = self.captured(stream).map(|captured| captured.capture);
        match (own, mark) {
            (None, None) => Ok(false),
            (Some(_), None) if !is_recorded => Ok(true),
            (Some(own), None) => {
                self.invalidate(own);
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (_, Some(mark)) if !self.captures.contains_key(&mark.capture) => Err(Code::CAPTURED_EVENT),
            (Some(own), Some(mark)) if own != mark.capture => {
                self.invalidate(own);
                self.invalidate(mark.capture);
                Err(Code::STREAM_CAPTURE_MERGE)
            }
            (_, Some(mark)) => {
                self.check_implicit(stream)?;
                let state = self.state_of_mut(stream)?;
                let empty = Captured { capture: mark.capture, last: Vec::new() };
                let last = &mut state.captured.get_or_insert(empty).last;
                last.extend(mark.last);
                last.sort_unstable();
                last.dedup();
                Ok(true)
            }
        }
    }
}
