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
    let header = [
        "setting",
        "peak requested",
        "peak reserved",
        "share used",
        "device calls",
        "smallest device",
        "over live",
        "host ns",
    ];
    let mut table = Table::new(header);
    for row in &comparison.rows {
        table.add([row.setting.name.clone()].into_iter().chain(cells(row, comparison)));
    }
    let recorded = recorded(comparison).map_or_else(String::new, |text| format!("\n{text}\n"));
    format!("{table}{recorded}\n{LEGEND}")
}

fn of_several(comparisons: &[Comparison], settings: &[Setting]) -> String {
    let used = matrix(comparisons, settings, |row, _| {
        format!("{}, {}", percent(row.requested, row.reserved), grouped(row.calls))
    });
    let devices = matrix(comparisons, settings, |row, comparison| {
        let smallest = device(row, comparison.capacity);
        comparison.over_live(row).map_or_else(|| smallest.clone(), |ratio| format!("{smallest}, {ratio:.3}"))
    });
    let header = ["setting", "mean", "worst", "of", "device calls", "over live: mean", "over live: worst"];
    let mut totals = Table::new(header);
    for total in Totals::all(comparisons, settings) {
        totals.add(total.cells());
    }
    format!(
        "{}:\n\n{totals}\nShare of the peak reserved memory that was requested, device calls (num_device_alloc + \
         num_device_free):\n\n{used}\nSmallest device on which the trace completes, to 2 MiB, and its size over the \
         bytes live at the peak:\n\n{devices}",
        heading(comparisons)
    )
}

/// Returns a table with a line for each trace and a column for each setting.
fn matrix(comparisons: &[Comparison], settings: &[Setting], cell: impl Fn(&Row, &Comparison) -> String) -> Table {
    let before = ["trace", "peak requested"].map(str::to_owned).into_iter();
    let mut table = Table::new(before.chain(settings.iter().map(|setting| setting.name.clone())));
    for comparison in comparisons {
        let Some(first) = comparison.rows.first() else { continue };
        let cells = settings
            .iter()
            .map(|setting| comparison.row(setting).map_or_else(String::new, |row| cell(row, comparison)));
        let before = [comparison.name.clone(), Bytes(first.requested).to_string()];
        table.add(before.into_iter().chain(cells));
    }
    table
}
