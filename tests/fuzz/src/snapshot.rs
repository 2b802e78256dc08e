//! Snapshots. What is read can be written, and is read back the same. It can be converted to a trace, whose lines can
//! be read, and shown as a report and in Perfetto's format.

use accelerator_cli::convert::{ConvertError, Options, Passes, Written, convert};
use accelerator_cli::trace::parse_line;
use accelerator_tracker::snapshot::{Collector, MemorySnapshot, SnapshotVisitor, TraceAction, visit_with};
use accelerator_tracker::{FileError, Limits};

use super::profile::check_profile;
use super::text::check_message;

pub fn run(data: &[u8]) {
    // So that most inputs are pickles.
    let bytes = if data.starts_with(b"\x80") { data.to_vec() } else { [b"\x80\x04", data].concat() };
    let Some(mut snapshot) = read(&bytes) else { return };
    // An entry that ran out of memory has no address. One that a file has all the same is not written.
    let entries = snapshot.device_traces.iter_mut().flatten();
    entries.filter(|entry| matches!(entry.action, TraceAction::OutOfMemory { .. })).for_each(|entry| entry.address = 0);
    let written = write(&snapshot);
    let again = read(&written).unwrap();
    // Texts, since numbers may be NaN.
    assert_eq!(format!("{again:?}"), format!("{snapshot:?}"), "what is written is not what is read");
    assert!(write(&again) == written);
    for device in 0..2 {
        check_profile(&accelerator_tracker::picture::Profile::of_snapshot("a snapshot", &snapshot, device));
        check_conversion(&snapshot, device);
    }
}

fn read(bytes: &[u8]) -> Option<MemorySnapshot> {
    let limits = Limits { memory: 1 << 24, ..Limits::default() };
    let mut collector = Collector::new(limits);
    match visit_with(bytes, "a snapshot", &mut collector, limits) {
        Ok(()) => Some(collector.snapshot),
        Err(error) => {
            check_message(&error.to_string());
            None
        }
    }
}

fn write(snapshot: &MemorySnapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes).unwrap();
    bytes
}

/// A snapshot in memory with a limit, which one of a trusted program does not have.
struct Limited<'a>(&'a MemorySnapshot);

impl Passes for Limited<'_> {
    fn pass(&mut self, visitor: &mut dyn SnapshotVisitor) -> Result<(), FileError> {
        let mut snapshot = self.0;
        snapshot.pass(visitor)
    }

    fn memory(&self) -> u64 {
        1 << 22
    }
}

fn check_conversion(snapshot: &MemorySnapshot, device: u32) {
    let options = Options { device: Some(device), ..Options::default() };
    let mut operations = 0;
    let converted = convert(&mut Limited(snapshot), &options, &mut |line| {
        match line {
            Written::Operation(op) => {
                let text = op.to_string();
                assert_eq!(parse_line(&text).map(|op| op.map(|op| op.to_string())), Ok(Some(text)));
                operations += 1;
            }
            Written::Comment(comment) => check_message(&format!("# {comment}")),
        }
        Ok(())
    });
    match converted {
        Ok(converted) => assert_eq!(converted.operations, operations),
        Err(ConvertError::Output(error)) => panic!("{error}"),
        Err(error) => check_message(&error.to_string()),
    }
}
