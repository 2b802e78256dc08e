//! Converts the history in a snapshot to a trace, as described in `TRACE_FORMAT.md` under *Histories*.
//!
//! The conversion makes two passes over the entries, and stores only the allocated memory. `first_pass` and `survey`
//! find the memory that existed before the first entry, `layout` rebuilds it, and `entries` converts the entries.

mod collection;
mod compact;
mod device;
mod entries;
mod expandable;
mod first_pass;
mod group;
mod input;
mod layout;
mod output;
mod pieces;
mod ranges;
mod segments;
mod settings;
mod streams;
mod survey;

use std::io;

use accelerator_core::AllocatorConfig;
use accelerator_tracker::FileError;
use accelerator_tracker::limits::{Budget, LimitError};
use accelerator_tracker::snapshot::{SnapshotVisitor, Stop, TraceEntry};

pub(crate) use self::device::chosen;
use self::entries::Entries;
use self::first_pass::Survey;
pub use self::input::{Passes, SnapshotFile};
use self::output::Output;
pub use self::output::{Sink, Written};
use self::survey::Start;
use crate::trace::Op;

/// Which parts of a snapshot to convert.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The device, or `None` for the one with the longest history.
    pub device: Option<u32>,
    /// Whether the trace sets the recorded settings.
    pub settings: bool,
    /// Whether the device has as much memory as the recorded one, and the driver refuses whenever the recorded one did.
    pub refusals: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, settings: true, refusals: true }
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// The device.
    pub device: u32,
    /// The number of operations in the trace.
    pub operations: u64,
    /// Bytes reserved from the driver in the snapshot.
    pub reserved: u64,
    /// Bytes of allocated blocks in the snapshot.
    pub allocated: u64,
    /// The settings that were recorded.
    pub config: AllocatorConfig,
    /// Differences from the recorded run, as messages.
    pub warnings: Vec<String>,
}

/// Why a snapshot cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It is empty.
    #[error("the snapshot has neither a history nor segments: was _record_memory_history called?")]
    Empty,
    /// It has other devices.
    #[error("nothing was recorded for device {device}; recorded devices: {known:?}")]
    NoSuchDevice {
        /// The device.
        device: u32,
        /// The devices in the snapshot.
        known: Vec<u32>,
    },
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It has more memory from before its history than a trace may rebuild.
    #[error("the memory from before its history cannot be rebuilt: {0}")]
    NotRebuilt(LimitError),
    /// The trace cannot be written.
    #[error("the trace cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Converts a snapshot. Passes each line to `sink` as soon as it is known.
///
/// # Errors
/// [`ConvertError`].
pub fn convert(snapshot: &mut dyn Passes, options: &Options, sink: Sink<'_>) -> Result<Converted, ConvertError> {
    let mut survey = Survey::new(snapshot.memory());
    snapshot.pass(&mut survey)?;
    let (start, budget) = survey.start(options.device)?;
    let mut output = Output::new(sink);
    let (converted, entries) = begin(start, budget, options, &mut output).map_err(of_rebuilding)?;
    let mut second = SecondPass { device: converted.device, entries };
    snapshot.pass(&mut second).map_err(of_output)?;
    second.entries.end()?;
    Ok(Converted { operations: output.operations(), ..converted })
}

struct SecondPass<'a, 'b> {
    device: u32,
    entries: Entries<'a, 'b>,
}

impl SnapshotVisitor for SecondPass<'_, '_> {
    fn entry(&mut self, device: u32, entry: TraceEntry) -> Result<(), Stop> {
        match device == self.device {
            true => Ok(self.entries.entry(&entry)?),
            false => Ok(()),
        }
    }
}

/// Distinguishes errors of the writer from errors of the reader.
fn of_output(error: FileError) -> ConvertError {
    match error {
        FileError::Stopped { path, source } => match source.downcast::<io::Error>() {
            Ok(error) => ConvertError::Output(*error),
            Err(source) => FileError::Stopped { path, source }.into(),
        },
        error => error.into(),
    }
}

/// Distinguishes the limit from errors of the writer.
fn of_rebuilding(error: io::Error) -> ConvertError {
    match LimitError::of(&error) {
        Some(limit) => ConvertError::NotRebuilt(limit.clone()),
        None => ConvertError::Output(error),
    }
}

/// Writes the lines before the entries.
fn begin<'a, 'b>(
    start: Start,
    budget: Budget,
    options: &'a Options,
    output: &'a mut Output<'b>,
) -> io::Result<(Converted, Entries<'a, 'b>)> {
    let Start { device, reserved, allocated, .. } = start;
    output.comment(&format!(
        "device {device} of a snapshot: {reserved} bytes reserved, {allocated} allocated at its end"
    ))?;
    for warning in &start.warnings {
        output.comment(warning)?;
    }
    if let (Some(bytes), true) = (start.capacity, options.refusals) {
        output.write(Op::Capacity { bytes })?;
    }
    if options.settings {
        output.write(Op::Conf { settings: start.config.to_string() })?;
    }
    if let Some(fraction) = start.fraction {
        output.write(Op::Fraction { fraction })?;
    }
    let live = layout::rebuild(&start, budget, options, output)?;
    let converted = Converted {
        device,
        operations: 0,
        reserved,
        allocated,
        config: start.config,
        warnings: start.warnings.clone(),
    };
    Ok((converted, Entries::new(start, live, options, output)?))
}
