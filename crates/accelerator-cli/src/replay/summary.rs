use std::fmt::Write;
use std::time::Duration;

use accelerator::memory::memory_summary_of;
use accelerator_conformance::Controls;
use accelerator_core::{Bytes, PauseReport, Statistics, printable};
use accelerator_tracker::grouped;
use comfy_table::{CellAlignment, Table, presets};

use super::outcome::Outcome;
use super::replayer::{Expandable, Replayer};
use crate::convert::Converted;

/// The result of a replay, as text.
#[derive(Debug, Default)]
pub struct Summary {
    out_of_memory: u64,
    paused: Moved,
    resumed: Moved,
    not_resumed: u64,
    /// Bytes reserved and allocated at the end of a recorded snapshot.
    recorded: Option<(u64, u64)>,
}

/// The memory of pools that was paused or resumed.
#[derive(Debug, Default)]
struct Moved {
    times: u64,
    bytes: u64,
    took: Duration,
}

impl Moved {
    fn add(&mut self, report: PauseReport) {
        self.times += 1;
        self.bytes += report.bytes;
        self.took += report.duration;
    }

    fn row(&self) -> String {
        let Self { times, bytes, took } = self;
        format!("{}: {} in {:.1} ms", grouped(*times), Bytes(*bytes), 1000.0 * took.as_secs_f64())
    }
}

impl Summary {
    /// Creates a summary that is compared with the recorded snapshot, if there is one.
    pub fn beside(recorded: Option<&Converted>) -> Self {
        let recorded = recorded.map(|converted| (converted.reserved, converted.allocated));
        Self { recorded, ..Self::default() }
    }

    /// Adds the outcome of a line.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::OutOfMemory(_) => self.out_of_memory += 1,
            Outcome::Paused(report) => self.paused.add(*report),
            Outcome::Resumed(report) => self.resumed.add(*report),
            Outcome::NotResumed(_) => self.not_resumed += 1,
            _ => {}
        }
    }

    /// Returns the text at the end of the replay.
    pub fn of<B: Controls>(&self, trace: &str, replayer: &Replayer<B>) -> String {
        let accelerator = replayer.accelerator();
        let statistics = accelerator.allocator().statistics();
        let device = accelerator.device();
        let (private, pools) = (accelerator.allocator().reserved_by_private_pools(), accelerator.allocator().pools());
        let mut text = memory_summary_of(device, &statistics, &private, &pools, false);
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for (name, value) in self.rows(&statistics, replayer) {
            table.add_row([name.to_owned(), value]);
        }
        if let Some(values) = table.column_mut(1) {
            values.set_cell_alignment(CellAlignment::Right);
        }
        let name = printable(&accelerator.properties().name);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{trace} on {device} ({name})\n\n{table}");
        text
    }

    fn rows<B: Controls>(&self, statistics: &Statistics, replayer: &Replayer<B>) -> Vec<(&'static str, String)> {
        let peak = |stat: accelerator_core::PoolStat| stat.all.peak.unsigned_abs();
        let (requested, reserved) = (peak(statistics.requested_bytes), peak(statistics.reserved_bytes));
        let Statistics { num_device_alloc, num_device_free, .. } = *statistics;
        let (operations, time) = replayer.operations();
        let mut rows = vec![
            ("peak requested", Bytes(requested).to_string()),
            ("peak allocated", Bytes(peak(statistics.allocated_bytes)).to_string()),
            ("peak reserved", Bytes(reserved).to_string()),
            ("share of reserved memory used", percent(requested, reserved)),
            (
                "device allocations and frees",
                format!("{} + {}", grouped(num_device_alloc.unsigned_abs()), grouped(num_device_free.unsigned_abs())),
            ),
            ("allocator operations", grouped(operations)),
        ];
        match replayer.expandable() {
            None => {}
            Some(Expandable::InUse) => rows.push(("expandable segments", "in use".to_owned())),
            Some(Expandable::NotToBeHad) => {
                rows.push(("expandable segments", "none: no virtual memory".to_owned()));
            }
        }
        if let Some(time) = time.filter(|_| operations > 0) {
            let each = time.as_nanos() / u128::from(operations);
            rows.push(("host time per operation", format!("{each} ns")));
        }
        if let Some((reserved, allocated)) = self.recorded {
            let current = |stat: accelerator_core::PoolStat| stat.all.current.unsigned_abs();
            let beside = |here: u64, recorded: u64| match here == recorded {
                true => format!("{}, as recorded", Bytes(here)),
                false => format!("{}, recorded {}", Bytes(here), Bytes(recorded)),
            };
            rows.push(("allocated at the end", beside(current(statistics.allocated_bytes), allocated)));
            rows.push(("reserved at the end", beside(current(statistics.reserved_bytes), reserved)));
        }
        if self.out_of_memory > 0 {
            rows.push(("requests out of memory", grouped(self.out_of_memory)));
        }
        for (name, moved) in [("pauses of pools", &self.paused), ("resumes of pools", &self.resumed)] {
            if moved.times > 0 {
                rows.push((name, moved.row()));
            }
        }
        if self.not_resumed > 0 {
            rows.push(("resumes out of memory", grouped(self.not_resumed)));
        }
        rows
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}
