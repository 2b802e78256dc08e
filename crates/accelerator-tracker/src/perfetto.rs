//! Writes a [`Profile`] as a trace in Chrome's JSON format, for <https://ui.perfetto.dev> and `chrome://tracing`.

use std::io::{self, Write};
use std::path::Path;

use accelerator_core::printable;
use serde::Serialize;

use crate::file::{FileError, write_whole};
use crate::picture::{Profile, Sample, Series};
use crate::tracker::MemoryUse;

const PROCESS: u32 = 1;
const THREAD: u32 = 1;

/// Writes the trace to a file, completely or not at all.
///
/// # Errors
/// [`FileError::Io`].
pub fn save(profile: &Profile, path: &Path) -> Result<(), FileError> {
    write_whole(path, |file| write(profile, file))
}

/// Writes memory as counters, modules and operators as slices, and markers as instants. Without times, a call takes a
/// microsecond.
///
/// # Errors
/// Errors of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { out, first: true };
    events.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    events.named("process_name", &profile.title)?;
    events.named("thread_name", "operators")?;
    let clock = Clock::of(profile);
    let mut calls = 0;
    let same_module =
        |a: &Sample, b: &Sample| profile.module_and_operator(&a.name).0 == profile.module_and_operator(&b.name).0;
    for run in profile.samples.chunk_by(same_module) {
        events.run(profile, run, calls, &clock)?;
        calls += run.len();
    }
    for series in Series::ALL {
        events.counter(profile, series, &clock)?;
    }
    for marker in &profile.markers {
        let name = printable(&*marker.name);
        let event = Event { s: Some("p"), ..Event::new("i", &name, clock.start(marker.call)) };
        events.write(&event)?;
    }
    events.out.write_all(b"\n]}\n")
}

/// An event. The field names are those of the format.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// The time in microseconds.
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Name { name: &'a str },
    Counter { bytes: u64 },
    Operator { call: usize, allocated: u64, active: u64, reserved: u64 },
}

impl<'a> Event<'a> {
    fn new(phase: &'static str, name: &'a str, ts: u64) -> Self {
        Self { name, ph: phase, pid: PROCESS, tid: THREAD, ts, dur: None, s: None, cat: None, args: None }
    }
}

/// The times at which calls began and ended.
struct Clock {
    times: Vec<u64>,
    measured: bool,
}

impl Clock {
    fn of(profile: &Profile) -> Self {
        let mut times = profile.times();
        let first = profile.samples.iter().map(|sample| sample.time_us).find(|time| *time != 0);
        if let (Some(start), Some(first)) = (profile.started_us, first) {
            let took = u64::try_from(first.saturating_sub(start)).unwrap_or(0);
            times.iter_mut().for_each(|time| *time = time.saturating_add(took));
        }
        Self { times, measured: profile.has_times() }
    }

    /// Returns when a call began: when the previous one ended. Samples are taken at the ends of calls.
    fn start(&self, call: usize) -> u64 {
        match (self.measured, call) {
            (false, _) => call as u64,
            (true, 0) => 0,
            (true, call) => self.end(call - 1),
        }
    }

    fn end(&self, call: usize) -> u64 {
        match self.measured {
            false => call as u64 + 1,
            true => self.times.get(call).or(self.times.last()).copied().unwrap_or(0),
        }
    }
}

struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    fn named(&mut self, what: &'static str, name: &str) -> io::Result<()> {
        let name = printable(name);
        self.write(&Event { args: Some(Arguments::Name { name: &name }), ..Event::new("M", what, 0) })
    }

    /// Writes consecutive calls of one module, enclosed by the module.
    fn run(&mut self, profile: &Profile, run: &[Sample], first: usize, clock: &Clock) -> io::Result<()> {
        let last = first + run.len() - 1;
        let module = run.first().map_or("", |sample| profile.module_and_operator(&sample.name).0);
        if !module.is_empty() {
            let start = clock.start(first);
            let dur = Some(clock.end(last).saturating_sub(start));
            let module = printable(module);
            self.write(&Event { dur, cat: Some("module"), ..Event::new("X", &module, start) })?;
        }
        for (call, sample) in run.iter().enumerate().map(|(at, sample)| (first + at, sample)) {
            let start = clock.start(call);
            let operator = printable(profile.module_and_operator(&sample.name).1);
            let MemoryUse { allocated, active, reserved } = sample.memory;
            self.write(&Event {
                dur: Some(clock.end(call).saturating_sub(start)),
                cat: Some("operator"),
                args: Some(Arguments::Operator { call, allocated, active, reserved }),
                ..Event::new("X", &operator, start)
            })?;
        }
        Ok(())
    }

    /// Writes the counter where it changes, and at the end.
    fn counter(&mut self, profile: &Profile, series: Series, clock: &Clock) -> io::Result<()> {
        let mut before = None;
        let last = profile.samples.len().saturating_sub(1);
        for (call, sample) in profile.samples.iter().enumerate() {
            let bytes = series.of(sample);
            if before != Some(bytes) || call == last {
                let args = Some(Arguments::Counter { bytes });
                self.write(&Event { args, ..Event::new("C", series.name(), clock.end(call)) })?;
            }
            before = Some(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::picture::Marker;
    use crate::snapshot::{Frame, MemorySnapshot, TraceAction, TraceEntry};
    use crate::tracker::{OperatorStats, TrackerStats};

    fn events(profile: &Profile) -> Vec<Value> {
        let mut text = Vec::new();
        write(profile, &mut text).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    fn profile(samples: &[(&str, i64, u64)]) -> Profile {
        let sample = |&(name, time_us, allocated): &(&str, i64, u64)| Sample {
            name: name.into(),
            time_us,
            memory: MemoryUse { allocated, active: allocated, reserved: 1 << 20 },
        };
        Profile { samples: samples.iter().map(sample).collect(), has_modules: true, ..Profile::default() }
    }

    fn of<'a>(events: &'a [Value], phase: &str, name: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == phase && event["name"] == name).collect()
    }

    #[test]
    fn modules_are_around_their_operators() {
        let mut profile = profile(&[("a.b.mm", 100, 5), ("a.b.add", 130, 9), ("c.mm", 170, 9), ("free", 200, 0)]);
        profile.markers = ["fw_bw_boundary", "\u{202e}x"].map(|name| Marker { name: name.into(), call: 2 }).into();
        let events = events(&profile);
        assert_eq!(of(&events, "i", "\\u{202e}x").len(), 1);
        let slice = |name| {
            let slices = of(&events, "X", name);
            (slices[0]["ts"].as_u64().unwrap(), slices[0]["dur"].as_u64().unwrap())
        };
        assert_eq!((slice("a.b"), slice("mm"), slice("add")), ((0, 30), (0, 0), (0, 30)));
        assert_eq!((slice("c"), slice("free")), ((30, 40), (70, 30)));
        assert_eq!(of(&events, "X", "add")[0]["args"]["allocated"], 9);
        let marker = of(&events, "i", "fw_bw_boundary")[0];
        assert_eq!((marker["ts"].as_u64(), marker["s"].as_str()), (Some(30), Some("p")));
        // Allocated changes at calls 0, 1 and 3. Reserved has only its first and last call.
        let counters = of(&events, "C", "allocated");
        let counters = counters.iter().map(|event| (event["ts"].as_u64(), event["args"]["bytes"].as_u64()));
        assert_eq!(counters.collect::<Vec<_>>(), [(Some(0), Some(5)), (Some(30), Some(9)), (Some(100), Some(0))]);
        assert_eq!(of(&events, "C", "reserved").len(), 2);
    }

    fn slices(profile: &Profile) -> Vec<(String, u64, u64)> {
        let number = |value: &Value| value.as_u64().unwrap();
        let slices = events(profile).into_iter().filter(|event| event["ph"] == "X");
        slices
            .map(|slice| (slice["name"].as_str().unwrap().into(), number(&slice["ts"]), number(&slice["dur"])))
            .collect()
    }

    #[test]
    fn operators_of_a_tracker_have_modules_and_begin_at_its_start() {
        let operator = |name: &str, micros| OperatorStats {
            name: name.to_owned(),
            time: Some(Duration::from_micros(micros)),
            memory: MemoryUse::default(),
        };
        let operators = vec![operator("a.b.mm_0", 40), operator("a.b.mm_1", 70)];
        let profile = Profile::of_tracker("", &TrackerStats { operators, ..TrackerStats::default() });
        let expected = [("a.b", 0, 70), ("mm_0", 0, 40), ("mm_1", 40, 30)];
        assert_eq!(slices(&profile), expected.map(|(name, ts, dur)| (name.to_owned(), ts, dur)));
    }

    #[test]
    fn the_places_of_a_snapshot_are_not_modules() {
        let frame = Frame { name: "convert".into(), filename: "torch/nn/module.py".into(), line: 1326 };
        let entry = |action| TraceEntry {
            action,
            address: 512,
            size: 1 << 20,
            stream: 0,
            time_us: 1,
            frames: [Arc::new(frame.clone())].into(),
            pool_id: (0, 0),
            user_metadata: "".into(),
            compile_context: "".into(),
            other: Vec::new(),
        };
        let device_traces = vec![vec![entry(TraceAction::Alloc), entry(TraceAction::FreeRequested)]];
        let snapshot = MemorySnapshot { device_traces, ..MemorySnapshot::default() };
        let names = slices(&Profile::of_snapshot("", &snapshot, 0)).into_iter().map(|(name, ..)| name);
        let expected = ["convert, module.py:1326", "free 1.00 MiB, convert, module.py:1326"];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_times_a_call_takes_a_microsecond() {
        let events = events(&profile(&[("x", 0, 1), ("y", 0, 2), ("y", 0, 3)]));
        let times: Vec<_> = of(&events, "X", "y").iter().map(|event| event["ts"].as_u64().unwrap()).collect();
        assert_eq!(times, [1, 2]);
        assert!(of(&events, "X", "").is_empty());
    }

    #[test]
    fn every_event_has_the_fields_that_the_format_requires() {
        let events = events(&profile(&[("\"quoted\".\u{202e}x\n", 1, 1), ("y", 0, 2)]));
        for event in &events {
            assert!(event["ph"].is_string() && event["pid"].is_u64() && event["tid"].is_u64() && event["ts"].is_u64());
            assert_eq!(event["ph"] == "X", event["dur"].is_u64());
        }
        assert!(!events.is_empty() && self::events(&Profile::default()).len() == 2);
    }
}
