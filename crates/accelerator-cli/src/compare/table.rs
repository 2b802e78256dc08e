//! Comparisons as tables for a terminal of 80 columns.

use accelerator_core::Bytes;
use accelerator_tracker::grouped;
use comfy_table::{CellAlignment, Table, presets};

use super::comparison::{Comparison, ENDLESS, Row};
use super::setting::Setting;
use crate::replay::percent;

/// Formats a comparison.
pub(crate) fn text(comparison: &Comparison) -> String {
    let Comparison { name, operations, live, capacity, rows } = comparison;
    let size = capacity.map_or_else(String::new, |bytes| format!(" of {}", Bytes(bytes)));
    let requested = rows.iter().map(|row| row.requested).max().unwrap_or(0);
    let table = settings(comparison, rows);
    let recorded = recorded(comparison).map_or_else(String::new, |text| format!("\n{text}\n"));
    format!(
        "{name}: {} operations, on a simulated device{size}\nAt the peak, {} are requested, and {} are live.\n\n\
         {table}{recorded}\n",
        grouped(*operations),
        Bytes(requested),
        Bytes(*live)
    )
}

/// Returns a table with a line for each setting.
pub(super) fn settings<'a>(comparison: &Comparison, rows: impl IntoIterator<Item = &'a Row>) -> String {
    let header =
        ["setting", "peak\nreserved", "share\nused", "device\ncalls", "smallest\ndevice", "over\nlive", "host\nns"];
    let rows = rows.into_iter().map(|row| {
        let name = [row.setting.name.clone()].into_iter();
        name.chain(cells(row, comparison).into_iter().skip(1)).collect()
    });
    table(header.map(str::to_owned).to_vec(), rows)
}

/// The meaning of the columns.
pub(crate) const LEGEND: &str = "\
Device calls: num_device_alloc + num_device_free. Smallest device: the trace
completes on it, but not with 2 MiB less. Over live: its size over the bytes
that are live at the peak, each allocation rounded up to 512 bytes. Host ns:
nanoseconds per operation, in the fastest of three replays.\n";

/// Formats a summary of several comparisons: the results of each setting over all traces.
pub(crate) fn summary(comparisons: &[Comparison], settings: &[Setting]) -> String {
    let totals = Totals::all(comparisons, settings);
    let header = ["setting", "mean", "worst", "of", "device\ncalls", "over live:\nmean", "\nworst"];
    let rows = totals.iter().map(|total| total.cells().to_vec());
    let table = table(header.map(str::to_owned).to_vec(), rows);
    format!("{}\n\n{table}\n", heading(comparisons))
}

/// Returns the heading of the summary.
pub(super) fn heading(comparisons: &[Comparison]) -> String {
    let complete = complete(comparisons).count();
    let of = match complete == comparisons.len() {
        true => format!("All {complete} traces"),
        false => format!("The {complete} of {} traces that complete under all settings", comparisons.len()),
    };
    format!(
        "{of}: peak reserved over peak requested, geometric mean and worst;\ndevice calls, all together; smallest \
         device over the bytes live at the peak,\ngeometric mean and worst"
    )
}

/// The results of a setting over all traces.
pub(super) struct Totals<'a> {
    pub(super) setting: &'a str,
    pub(super) mean: f64,
    pub(super) worst: f64,
    pub(super) worst_of: &'a str,
    pub(super) calls: u64,
    /// The geometric mean and the worst ratio of the smallest device to the bytes live at the peak.
    pub(super) device: f64,
    pub(super) worst_device: f64,
}

impl<'a> Totals<'a> {
    pub(super) fn all(comparisons: &'a [Comparison], settings: &'a [Setting]) -> Vec<Self> {
        settings.iter().map(|setting| Self::of(comparisons, setting)).collect()
    }

    fn of(comparisons: &'a [Comparison], setting: &'a Setting) -> Self {
        let (mean, worst, calls, device, worst_device) = Default::default();
        let mut totals = Self { setting: &setting.name, mean, worst, worst_of: "-", calls, device, worst_device };
        let mut count = 0.0;
        for comparison in complete(comparisons) {
            let Some(row) = comparison.row(setting) else { continue };
            let Some(device) = comparison.over_live(row) else { continue };
            count += 1.0;
            totals.mean += row.overhead().ln();
            totals.device += device.ln();
            totals.worst_device = totals.worst_device.max(device);
            totals.calls += row.calls;
            if row.overhead() > totals.worst {
                (totals.worst, totals.worst_of) = (row.overhead(), &comparison.name);
            }
        }
        Self { mean: (totals.mean / count).exp(), device: (totals.device / count).exp(), ..totals }
    }

    /// Returns all cells.
    pub(super) fn cells(&self) -> [String; 7] {
        let Self { setting, mean, worst, worst_of, calls, device, worst_device } = *self;
        let [mean, worst, device, worst_device] = [mean, worst, device, worst_device].map(|one| format!("{one:.3}"));
        [setting.to_owned(), mean, worst, worst_of.to_owned(), grouped(calls), device, worst_device]
    }
}

/// Returns the comparisons in which the trace completes under all settings.
fn complete(comparisons: &[Comparison]) -> impl Iterator<Item = &Comparison> {
    comparisons.iter().filter(|comparison| comparison.rows.iter().all(|row| row.smallest.is_some()))
}

/// Returns the recorded settings as text, if there is a row for them.
pub(super) fn recorded(comparison: &Comparison) -> Option<String> {
    let named = comparison.rows.iter().find(|row| row.setting.name == Setting::RECORDED)?;
    Some(format!("{}: {}", Setting::RECORDED, named.setting.config))
}

/// Returns all cells except the name of the setting.
pub(super) fn cells(row: &Row, comparison: &Comparison) -> [String; 7] {
    [
        Bytes(row.requested).to_string(),
        Bytes(row.reserved).to_string(),
        percent(row.requested, row.reserved),
        grouped(row.calls),
        device(row, comparison.capacity),
        comparison.over_live(row).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        row.time.as_nanos().to_string(), // without separators, which would not fit on a slow machine
    ]
}

/// Returns the smallest device, or a size that is too small.
pub(super) fn device(row: &Row, capacity: Option<u64>) -> String {
    let over = || format!("over {}", Bytes(capacity.unwrap_or(ENDLESS)));
    row.smallest.map_or_else(over, |smallest| Bytes(smallest).to_string())
}

/// Wraps text to 80 columns.
pub(super) fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 80;
    let mut lines = String::new();
    let mut column = 0;
    let glued = text.replace(" %", "\u{a0}%"); // no line break between a number and its unit
    for word in glued.split(' ') {
        let length = word.chars().count();
        let separator = match column {
            0 => "",
            _ if column + 1 + length > COLUMNS => "\n",
            _ => " ",
        };
        column = if separator == " " { column + 1 + length } else { length };
        lines.extend([separator, word]);
    }
    lines.replace('\u{a0}', " ") + "\n"
}

/// Formats a table of numbers. The first column is aligned to the left, the others to the right.
fn table(header: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header).add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if number > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
