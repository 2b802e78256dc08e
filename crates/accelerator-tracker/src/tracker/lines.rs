//! Reads and writes a run in our own format: JSON, one value on each line, starting with a header and ending with an
//! end line.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::line_reader::{Lines, optional_object};
use super::stats::{Marker, MemoryUse, OperatorStats, TrackerStats};
use crate::file::{FileError, excerpt};
use crate::limits::Limits;

const FORMAT: &str = "accelerator-tracker";
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    device: Option<String>,
    total_memory: Option<u64>,
    #[serde(default, deserialize_with = "optional_object")]
    start: Option<MemoryUse>,
}

/// The part of a header that shows whether it is one of ours.
#[derive(Deserialize)]
struct Opening {
    format: Option<String>,
    version: Option<u64>,
}

/// A line after the header.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Operator(Operator),
    Marker(NamedMoment),
    End(End),
}

/// The part of a line that says what the rest of it is.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Serialize, Deserialize)]
struct Operator {
    name: String,
    time_ns: Option<u64>,
    allocated: u64,
    active: u64,
    reserved: u64,
}

#[derive(Serialize, Deserialize)]
struct NamedMoment {
    name: String,
    /// The number of operators before it.
    position: usize,
    time_ns: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct End {
    operators: usize,
    markers: usize,
    num_alloc_retries: u64,
}

pub(super) fn write(stats: &TrackerStats, out: &mut dyn Write) -> io::Result<()> {
    let TrackerStats { device, total_memory, start, operators, markers, num_alloc_retries } = stats;
    let (format, version, device) = (FORMAT.to_owned(), VERSION, device.clone());
    write_line(out, &Header { format, version, device, total_memory: *total_memory, start: *start })?;
    for OperatorStats { name, time, memory } in operators {
        let (name, time_ns) = (name.clone(), nanoseconds(*time));
        let MemoryUse { allocated, active, reserved } = *memory;
        write_line(out, &Line::Operator(Operator { name, time_ns, allocated, active, reserved }))?;
    }
    for Marker { name, position, time } in markers {
        let (name, time_ns) = (name.clone(), nanoseconds(*time));
        write_line(out, &Line::Marker(NamedMoment { name, position: *position, time_ns }))?;
    }
    let (operators, markers, num_alloc_retries) = (operators.len(), markers.len(), *num_alloc_retries);
    write_line(out, &Line::End(End { operators, markers, num_alloc_retries }))
}

fn write_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

pub(super) fn read(reader: &mut dyn BufRead, path: &Path, limits: Limits) -> Result<TrackerStats, FileError> {
    let mut lines = Lines::new(reader, path, limits);
    let mut stats = read_header(&mut lines)?;
    while lines.advance()? {
        let Kind { kind } = lines.parse()?;
        match &*kind {
            "operator" => {
                let Operator { name, time_ns, allocated, active, reserved } = lines.parse()?;
                let memory = possible(&lines, MemoryUse { allocated, active, reserved })?;
                let bytes = name.capacity();
                let operator = OperatorStats { name, time: duration(time_ns), memory };
                lines.keep(&mut stats.operators, operator, bytes)?;
            }
            "marker" => {
                let NamedMoment { name, position, time_ns } = lines.parse()?;
                let bytes = name.capacity();
                let marker = Marker { name, position, time: duration(time_ns) };
                lines.keep(&mut stats.markers, marker, bytes)?;
            }
            "end" => {
                let End { operators, markers, num_alloc_retries } = lines.parse()?;
                stats.num_alloc_retries = num_alloc_retries;
                check(&lines, &stats, operators, markers)?;
                return if lines.advance()? { Err(lines.wrong("there is data after the end")) } else { Ok(stats) };
            }
            _ => {} // newer programs may write other kinds
        }
    }
    Err(lines.wrong("the file is truncated: the line that ends a run is missing"))
}

fn read_header(lines: &mut Lines<'_>) -> Result<TrackerStats, FileError> {
    const FOREIGN: &str = "not a memory tracker's file: it does not start with {\"format\":\"accelerator-tracker\",…}";
    if !lines.advance()? {
        return Err(lines.wrong("the file is empty"));
    }
    let opening = lines.parse().ok().filter(|Opening { format, .. }| format.as_deref() == Some(FORMAT));
    match opening.ok_or_else(|| lines.wrong(FOREIGN))?.version {
        Some(version) if version > VERSION => {
            let reason = format!(
                "the file has version {version} of the format, but this program reads version {VERSION}: use a \
                 newer program"
            );
            return Err(lines.wrong(reason));
        }
        _ => {}
    }
    let Header { device, total_memory, start, .. } = lines.parse()?;
    let start = start.map(|start| possible(lines, start)).transpose()?;
    Ok(TrackerStats { device, total_memory, start, ..TrackerStats::default() })
}

fn possible(lines: &Lines<'_>, memory: MemoryUse) -> Result<MemoryUse, FileError> {
    let wrong = || lines.wrong("an amount of memory is 2^63 bytes or more, which no device has");
    if memory.is_possible() { Ok(memory) } else { Err(wrong()) }
}

/// Checks that all lines are there, and that each marker is within the operators.
fn check(lines: &Lines<'_>, stats: &TrackerStats, operators: usize, markers: usize) -> Result<(), FileError> {
    let found = (stats.operators.len(), stats.markers.len());
    if (operators, markers) != found {
        let (had_operators, had_markers) = found;
        return Err(lines.wrong(format!(
            "lines are missing: the end counts {operators} operators and {markers} markers, but the file has \
             {had_operators} and {had_markers}"
        )));
    }
    match stats.markers.iter().find(|marker| marker.position > operators) {
        Some(Marker { name, position, .. }) => {
            let name = excerpt(name);
            Err(lines.wrong(format!(
                "the marker `{name}` comes after {position} operators, but there are only \
                                     {operators}"
            )))
        }
        None => Ok(()),
    }
}

fn nanoseconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_nanos() as u64) // enough for 584 years
}

fn duration(nanoseconds: Option<u64>) -> Option<Duration> {
    nanoseconds.map(Duration::from_nanos)
}
