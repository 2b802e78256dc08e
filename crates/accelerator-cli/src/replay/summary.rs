use std::fmt::Write;

use accelerator::memory::memory_summary_of;
use accelerator_conformance::Controls;
use accelerator_core::{Bytes, Statistics, printable};
use accelerator_tracker::grouped;
use comfy_table::{CellAlignment, Table, presets};

use super::outcome::Outcome;
use super::replayer::{Expandable, Replayer};
use crate::convert::Converted;

/// The result of a replay, as text.
#[derive(Debug, Default)]
pub struct Summary {
    out_of_memory: u64,
    /// Bytes reserved and allocated at the end of a recorded snapshot.
    recorded: Option<(u64, u64)>,
}

impl Summary {
    /// Creates a summary that is compared with the recorded snapshot, if there is one.
    pub fn beside(recorded: Option<&Converted>) -> Self {
        let recorded = recorded.map(|converted| (converted.reserved, converted.allocated));
        Self { recorded, ..Self::default() }
    }

    /// Adds the outcome of a line.
    pub fn add(&mut self, outcome: &Outcome) {
        self.out_of_memory += u64::from(matches!(outcome, Outcome::OutOfMemory(_)));
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
        rows
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}
