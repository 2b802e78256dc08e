//! Comparisons as Markdown: one trace has a line for each setting, several traces have the settings side by side.

use accelerator_core::Bytes;
use accelerator_tracker::grouped;

use super::comparison::{Comparison, Row};
use super::setting::Setting;
use super::table::{LEGEND, Totals, cells, device, heading, recorded};
use crate::markdown::Table;
use crate::replay::percent;

/// Formats comparisons under the same settings. If there is only one comparison, it may have additional settings.
pub(crate) fn markdown(comparisons: &[Comparison], settings: &[Setting]) -> String {
    match comparisons {
        [one] => of_one(one),
        all => of_several(all, settings),
    }
}

fn of_one(comparison: &Comparison) -> String {
    let header =
        ["setting", "peak requested", "peak reserved", "share used", "device calls", "smallest device", "host ns"];
    let mut table = Table::new(header);
    for row in &comparison.rows {
        table.add([row.setting.name.clone()].into_iter().chain(cells(row, comparison.capacity)));
    }
    let recorded = recorded(comparison).map_or_else(String::new, |text| format!("\n{text}\n"));
    format!("{table}{recorded}\n{LEGEND}")
}

fn of_several(comparisons: &[Comparison], settings: &[Setting]) -> String {
    let used = matrix(comparisons, settings, |row, _, _| {
        format!("{}, {}", percent(row.requested, row.reserved), grouped(row.calls))
    });
    let devices = matrix(comparisons, settings, |row, first, capacity| {
        let smallest = device(row, capacity);
        let (Some(own), Some(first)) = (row.smallest, first.smallest) else { return smallest };
        let percent = 100.0 * (own as f64 / first as f64 - 1.0);
        match percent.abs() < 0.05 {
            true => smallest,
            false => format!("{smallest}, {percent:+.1} %"),
        }
    });
    let mut totals = Table::new(["setting", "mean", "worst", "of", "device calls", "smallest device"]);
    for Totals { setting, mean, worst, worst_of, calls, device } in Totals::all(comparisons, settings) {
        let (mean, worst) = (format!("{mean:.3}"), format!("{worst:.3}"));
        let device = format!("{device:.3}");
        totals.add([setting, &mean, &worst, worst_of, &grouped(calls), &device]);
    }
    format!(
        "{}:\n\n{totals}\nShare of the peak reserved memory that was requested, device calls (num_device_alloc + \
         num_device_free):\n\n{used}\nSmallest device on which the trace completes, to 2 MiB, beside that of the \
         first setting:\n\n{devices}",
        heading(comparisons)
    )
}

/// Returns a table with a line for each trace and a column for each setting.
fn matrix(comparisons: &[Comparison], settings: &[Setting], cell: impl Fn(&Row, &Row, Option<u64>) -> String) -> Table {
    let before = ["trace", "peak requested"].map(str::to_owned).into_iter();
    let mut table = Table::new(before.chain(settings.iter().map(|setting| setting.name.clone())));
    for comparison in comparisons {
        let Some(first) = comparison.rows.first() else { continue };
        let cells = settings.iter().map(|setting| {
            comparison.row(setting).map_or_else(String::new, |row| cell(row, first, comparison.capacity))
        });
        let before = [comparison.name.clone(), Bytes(first.requested).to_string()];
        table.add(before.into_iter().chain(cells));
    }
    table
}
