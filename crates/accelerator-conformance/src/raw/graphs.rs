//! Graphs: work that is captured once and launched many times.
#![allow(unsafe_code)] // `ExecutableGraph::launch`

use accelerator_core::{Backend, CaptureMode, DriverErrorKind, DriverResult, ExecutableGraph, Graphs};

use super::rig::Rig;
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};

type Graph<B> = Box<dyn ExecutableGraph<B>>;

/// A page: no work here needs to take long.
const LEN: u64 = 4096;

/// The calls of a driver's graphs.
struct Recorder<'a, B: Backend> {
    rig: &'a Rig<'a, B>,
    graphs: &'a dyn Graphs<B>,
}

impl<'a, B: Backend> Recorder<'a, B> {
    fn of(rig: &'a Rig<B>) -> Result<Self, Failure> {
        let none = || Failure::NotAsked("the backend has no graphs".to_owned());
        Ok(Self { rig, graphs: rig.backend.graphs().ok_or_else(none)? })
    }

    fn begin(&self, stream: &B::Stream) -> Outcome {
        self.rig.call(Call::Begin, || self.graphs.begin(stream, CaptureMode::default()))
    }

    fn try_end(&self, stream: &B::Stream) -> DriverResult<Graph<B>> {
        self.rig.ask(Call::End, || self.graphs.end(stream))
    }

    fn end(&self, stream: &B::Stream) -> Result<Graph<B>, Failure> {
        self.rig.call(Call::End, || self.graphs.end(stream))
    }

    fn capture_of(&self, stream: &B::Stream) -> Result<Option<u64>, Failure> {
        let number = self.rig.call(Call::CaptureOf, || self.graphs.capture_of(stream))?;
        let captures = self.rig.call(Call::IsCapturing, || self.rig.backend.is_capturing(stream))?;
        match captures == number.is_some() {
            true => Ok(number),
            false => Err(format!("`capture_of` says {number:?}, but `is_capturing` says {captures}").into()),
        }
    }

    fn mark(&self, stream: &B::Stream) -> Result<Option<u64>, Failure> {
        self.rig.call(Call::Mark, || self.graphs.mark(stream))
    }

    fn precede(&self, marks: &[u64], stream: &B::Stream, expected: &[bool]) -> Outcome {
        let told = self.rig.call(Call::Precede, || self.graphs.precede(marks, stream))?;
        match told == expected {
            true => Ok(()),
            false => Err(format!("`precede` says {told:?}, not {expected:?}").into()),
        }
    }

    /// Makes `stream` wait for the work of `other` so far.
    fn wait(&self, stream: &B::Stream, other: &B::Stream) -> Outcome {
        let event = self.rig.recorded(other)?;
        self.rig.wait(stream, &event)
    }

    fn launch(&self, graph: &Graph<B>, stream: &B::Stream) -> Outcome {
        // SAFETY: The rig keeps the memory until all streams are done.
        self.rig.call(Call::Launch, || unsafe { graph.launch(stream) })
    }

    /// Checks that the stream captures nothing, and that its work runs.
    fn is_usable(&self, stream: &B::Stream, after: &str) -> Outcome {
        if let Some(number) = self.capture_of(stream)? {
            return Err(format!("after {after}, `capture_of` still says {number}").into());
        }
        let filled = self.rig.filled(LEN, 9, stream)?;
        self.rig.holds(filled, 9, stream, &format!("a `fill` after {after} did not run"))
    }
}

pub(super) fn captured_work_runs_at_each_launch<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    rig.step(&"captured work does not run before its graph is launched");
    let (stream, other) = (rig.stream()?, rig.stream()?);
    let [input, filled, output] = [1, 0, 0].map(|value| rig.filled(LEN, value, &stream));
    let (input, filled, output) = (input?, filled?, output?);
    let copied = rig.pinned(LEN, 0)?;
    graphs.begin(&stream)?;
    rig.fill(filled, 7, &stream)?;
    rig.copy(output, input, &stream)?;
    rig.copy(copied, output, &stream)?;
    let graph = graphs.end(&stream)?;
    rig.holds(filled, 0, &stream, "a captured `fill` ran before `launch`")?;
    rig.holds(output, 0, &stream, "a captured `copy` ran before `launch`")?;

    rig.step(&"captured work runs at each launch, on what the memory holds then, on any stream");
    for (value, stream) in [(1, &stream), (2, &stream), (3, &other)] {
        rig.fill(input, value, stream)?;
        rig.fill(filled, 0, stream)?;
        rig.call(Call::Upload, || graph.upload(stream))?;
        graphs.launch(&graph, stream)?;
        rig.holds(filled, 7, stream, "`launch` did not run a captured `fill`")?;
        rig.holds(output, value, stream, "`launch` did not copy what the memory held")?;
        super::bytes::all(copied.bytes(), value)
            .map_err(|difference| format!("`launch` did not copy to the host: {difference}"))?;
    }

    rig.step(&"a graph may be dropped while its work runs");
    rig.fill(input, 4, &stream)?;
    graphs.launch(&graph, &stream)?;
    drop(graph);
    rig.holds(output, 4, &stream, "the work of a launched graph was lost when the graph was dropped")
}

pub(super) fn streams_join_a_capture<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    rig.step(&"a stream that waits for an event of a capture takes part in it");
    let (stream, side) = (rig.stream()?, rig.stream()?);
    let [first, second, third] = [0; 3].map(|value| rig.filled(LEN, value, &stream));
    let (first, second, third) = (first?, second?, third?);
    let mut numbers = Vec::new();
    for value in [1, 2] {
        graphs.begin(&stream)?;
        if graphs.capture_of(&side)?.is_some() {
            return Err("`capture_of` names a capture for a stream that takes part in none".into());
        }
        rig.fill(first, value, &stream)?;
        graphs.wait(&side, &stream)?;
        rig.copy(second, first, &side)?;
        let [number, of_side] = [graphs.capture_of(&stream)?, graphs.capture_of(&side)?];
        if number.is_none() || number != of_side {
            return Err(format!(
                "`capture_of` says {number:?} for a stream that captures, and {of_side:?} after `wait` for one that \
                 waits for it"
            )
            .into());
        }
        numbers.push(number);
        graphs.wait(&stream, &side)?;
        rig.copy(third, second, &stream)?;
        let graph = graphs.end(&stream)?;
        for stream in [&stream, &side] {
            graphs.is_usable(stream, "the end of a capture")?;
        }
        rig.fill(second, 0, &side)?;
        rig.synchronize(&side)?;
        graphs.launch(&graph, &stream)?;
        rig.holds(third, value, &stream, "`launch` did not keep the order of two captured streams")?;
    }
    match numbers[0] == numbers[1] {
        true => Err("`capture_of` has the same number for two captures".into()),
        false => Ok(()),
    }
}

pub(super) fn broken_captures_end<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    let (stream, side) = (rig.stream()?, rig.stream()?);
    let written = rig.filled(LEN, 0, &stream)?;

    rig.step(&"`end` fails if the stream did not wait for another that takes part, and the capture is over");
    graphs.begin(&stream)?;
    rig.fill(written, 1, &stream)?;
    graphs.wait(&side, &stream)?;
    rig.fill(written, 2, &side)?;
    if graphs.try_end(&stream).is_ok() {
        return Err("`end` did not fail, though another stream captured work that was not waited for".into());
    }
    for stream in [&stream, &side] {
        graphs.is_usable(stream, "an `end` that failed")?;
    }
    rig.holds(written, 0, &stream, "captured work ran, though `end` failed")?;

    rig.step(&"`begin` fails on a stream that captures, and `end` on one that does not");
    if graphs.try_end(&stream).is_ok() {
        return Err("`end` did not fail on a stream that does not capture".into());
    }
    graphs.begin(&stream)?;
    if rig.ask(Call::Begin, || graphs.graphs.begin(&stream, CaptureMode::default())).is_ok() {
        return Err("`begin` did not fail on a stream that captures".into());
    }
    drop(graphs.try_end(&stream)); // the refused call may have broken the capture
    graphs.is_usable(&stream, "a `begin` that failed")?;

    rig.step(&"streams can capture again after a capture that was broken");
    graphs.begin(&side)?;
    rig.fill(written, 3, &side)?;
    let graph = graphs.end(&side)?;
    graphs.launch(&graph, &stream)?;
    rig.holds(written, 3, &stream, "`launch` did not run a captured `fill`")
}

pub(super) fn captures_give_no_answers<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    rig.step(&"while a stream captures, queries of it and of events in the capture fail, and nothing is lost");
    for question in [Call::Synchronize, Call::IsIdle, Call::IsComplete, Call::WaitHost] {
        let (stream, event) = (rig.stream()?, rig.plain_event()?);
        let (before, captured) = (rig.filled(LEN, 0, &stream)?, rig.filled(LEN, 0, &stream)?);
        rig.fill(before, 1, &stream)?;
        graphs.begin(&stream)?;
        rig.fill(captured, 2, &stream)?;
        rig.record(&event, &stream)?;
        let answer = rig.ask(question, || match question {
            Call::Synchronize => rig.backend.synchronize(&stream),
            Call::IsIdle => rig.backend.is_idle(&stream).map(drop),
            Call::IsComplete => rig.backend.is_complete(&event).map(drop),
            _ => rig.backend.wait_host(&event),
        });
        let name = question.name();
        match answer {
            Ok(()) => return Err(format!("`{name}` did not fail in a capture").into()),
            Err(error) if error.kind == DriverErrorKind::DeviceLost => {
                return Err(format!("`{name}` says in a capture that the device is lost: {error}").into());
            }
            Err(_) => {}
        }
        // The call may have broken the capture.
        if let Ok(graph) = graphs.try_end(&stream) {
            graphs.launch(&graph, &stream)?;
            rig.holds(captured, 2, &stream, &format!("captured work was lost after `{name}` failed"))?;
        }
        graphs.is_usable(&stream, &format!("a `{name}` that failed in a capture"))?;
        rig.holds(before, 1, &stream, &format!("work from before the capture was lost after `{name}` failed"))?;
        rig.record(&event, &stream)?;
        rig.wait_host(&event)?;
    }
    Ok(())
}

pub(super) fn launches_run_one_after_another<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    rig.step(&"a launch is work of its stream, and two launches of a graph run one after another");
    let (worker, other) = (rig.worker()?, rig.stream()?);
    let (input, output) = (rig.filled(LEN, 0, &other)?, rig.filled(LEN, 0, &other)?);
    graphs.begin(&worker.stream)?;
    rig.copy(output, input, &worker.stream)?;
    let graph = graphs.end(&worker.stream)?;
    rig.asked("the work before the launch was done too early", |factor| {
        rig.fill(input, 0, &other)?;
        rig.fill(output, 0, &other)?;
        rig.synchronize(&other)?;
        rig.busy(&worker, factor)?;
        let busy = rig.recorded(&worker.stream)?;
        rig.fill(input, 1, &worker.stream)?;
        graphs.launch(&graph, &worker.stream)?;
        rig.fill(input, 2, &worker.stream)?;
        graphs.launch(&graph, &other)?;
        let was_open = !rig.is_complete(&busy)?;
        rig.synchronize(&other)?;
        let is_behind = rig.is_complete(&busy)?;
        rig.synchronize(&worker.stream)?;
        let copy = rig.pinned(LEN, 0)?;
        rig.copy(copy, output, &other)?;
        rig.synchronize(&other)?;
        match is_behind && copy.bytes()[0] > 0 {
            true => Ok(was_open),
            false => Err("`launch` ran before earlier work of its stream, or before the last launch was done".into()),
        }
    })
}

pub(super) fn marks_precede_what_follows<B: Backend>(rig: &Rig<B>) -> Outcome {
    let graphs = Recorder::of(rig)?;
    rig.step(&"`precede` says whether a mark precedes everything that a stream captures from now on");
    let (stream, side) = (rig.stream()?, rig.stream()?);
    let [written, beside] = [rig.filled(LEN, 0, &stream)?, rig.filled(LEN, 0, &stream)?];
    if graphs.mark(&stream)?.is_some() {
        return Err("`mark` has a number for a stream that captures nothing".into());
    }
    graphs.begin(&stream)?;
    rig.fill(written, 1, &stream)?;
    let Some(first) = graphs.mark(&stream)? else {
        graphs.end(&stream)?;
        return Err(Failure::NotAsked("the backend has no marks".to_owned()));
    };
    graphs.precede(&[first], &stream, &[true])?;
    graphs.wait(&side, &stream)?;
    graphs.precede(&[first], &side, &[true])?;
    rig.fill(written, 2, &stream)?;
    rig.fill(beside, 3, &side)?;
    let both = [graphs.mark(&stream)?, graphs.mark(&side)?];
    let [Some(second), Some(third)] = both else {
        return Err(format!("`mark` returned {both:?} for streams that have captured work").into());
    };
    let marks = [third, first, second];
    graphs.precede(&marks, &stream, &[false, true, true])?;
    graphs.precede(&marks, &side, &[true, true, false])?;
    graphs.wait(&stream, &side)?;
    graphs.precede(&marks, &stream, &[true; 3])?;
    graphs.precede(&marks, &side, &[true, true, false])?;
    let graph = graphs.end(&stream)?;
    graphs.launch(&graph, &stream)?;
    rig.holds(written, 2, &stream, "`launch` did not run a `fill` behind a mark")?;
    rig.holds(beside, 3, &stream, "`launch` did not run a `fill` of another stream")
}
