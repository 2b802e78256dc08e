//! Stream capture: work is recorded instead of executed. Graphs cannot be launched here.

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};
use crate::stream::Kind;
use crate::thread;

pub(crate) struct Capture {
    /// The stream in which it began, and in which it must end.
    origin: Handle,
    thread: u64,
    mode: u32,
    invalidated: bool,
    /// For each operation, the operations that it depends on.
    nodes: Vec<Vec<usize>>,
}

/// The position of a stream or an event in a capture.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) capture: u64,
    /// What the next operation depends on.
    last: Vec<usize>,
}

/// `CUstreamCaptureStatus`
pub(crate) const NOT_CAPTURING: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

impl Driver {
    fn captured(&self, stream: Handle) -> Option<&Captured> {
        self.state_of(stream).ok()?.captured.as_ref()
    }

    fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalidated = true;
        }
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

    /// Adds the next operation of a stream to its capture. Returns false if the stream is not captured.
    pub(crate) fn capture_operation(&mut self, stream: Handle) -> Outcome<bool> {
        self.check_implicit(stream)?;
        let lane = self.engine.lanes.get_mut(&stream);
        let Some(captured) = lane.and_then(|lane| lane.data.captured.as_mut()) else { return Ok(false) };
        let capture = self.captures.get_mut(&captured.capture).ok_or(Code::ILLEGAL_STATE)?;
        if capture.invalidated {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let node = capture.nodes.len();
        capture.nodes.push(std::mem::replace(&mut captured.last, vec![node]));
        Ok(true)
    }

    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: u32) -> Outcome {
        let capture = self.engine.new_handle() as u64;
        let state = self.state_of_mut(stream)?;
        if state.kind == Kind::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if state.captured.is_some() || mode > thread::RELAXED {
            return Err(if mode > thread::RELAXED { Code::INVALID_VALUE } else { Code::ILLEGAL_STATE });
        }
        state.captured = Some(Captured { capture, last: Vec::new() });
        let thread = thread::number();
        let begun = Capture { origin: stream, thread, mode, invalidated: false, nodes: Vec::new() };
        self.captures.insert(capture, begun);
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: Handle) -> Outcome<Handle> {
        let own = self.captured(stream).ok_or(Code::ILLEGAL_STATE)?.clone();
        let capture = self.captures.get_mut(&own.capture).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            capture.invalidated = true;
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != thread::RELAXED && capture.thread != thread::number() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let invalidated = capture.invalidated;
        let joined = capture.is_reached(&own.last);
        self.forget_capture(own.capture);
        if invalidated {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if !joined {
            return Err(Code::STREAM_CAPTURE_UNJOINED);
        }
        let graph = self.engine.new_handle();
        self.graphs.push(graph);
        Ok(graph)
    }

    fn forget_capture(&mut self, capture: u64) {
        self.captures.remove(&capture);
        for lane in self.engine.lanes.values_mut() {
            lane.data.captured.take_if(|captured| captured.capture == capture);
        }
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

impl Capture {
    /// Whether every operation is among these or precedes one of them.
    fn is_reached(&self, last: &[usize]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut next: Vec<usize> = last.to_vec();
        while let Some(node) = next.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                next.extend(&self.nodes[node]);
            }
        }
        reached.iter().all(|reached| *reached)
    }
}
