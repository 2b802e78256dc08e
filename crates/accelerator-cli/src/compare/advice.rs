//! Advice on which settings to choose for a job.

use std::fmt;

use accelerator_core::Bytes;

use super::comparison::{Comparison, Row};
use super::setting::{DEFAULT, Setting};
use super::table::{settings, wrapped};
use crate::replay::percent;

/// The share of the reserved memory or of the smallest device that settings must save to be worth a change.
const WORTH: f64 = 0.05;

/// The share by which one of the two may get worse while the other improves.
const LOSS: f64 = 0.01;

/// Advice for a job. It is formatted as text.
pub(crate) struct Advice<'a> {
    pub(super) comparison: &'a Comparison,
    /// The row of the current settings: those that the job was recorded with, or the defaults.
    pub(super) now: &'a Row,
    pub(super) best: Option<&'a Row>,
    /// The best of the settings that work on every device, if `best` does not.
    everywhere: Option<&'a Row>,
}

impl<'a> Advice<'a> {
    /// Returns advice for a job that currently has the settings `now`, or `None` if these were not compared.
    pub(crate) fn of(comparison: &'a Comparison, now: &Setting) -> Option<Self> {
        let now = comparison.row(now)?;
        let best = best(now, comparison.rows.iter().filter(|row| row.setting.maps));
        let everywhere = match best.is_some_and(|best| best.setting.needs_virtual_memory()) {
            true => best_everywhere(now, &comparison.rows),
            false => None,
        };
        Some(Self { comparison, now, best, everywhere })
    }
}

/// Returns the settings that save the most. Of equal ones, returns those with the fewest device calls.
fn best<'a>(now: &Row, rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    let worth_it = rows.filter_map(|row| {
        let (reserved, device) = gains(now, row)?;
        let is_worth_it = reserved.max(device) >= WORTH && reserved.min(device) >= -LOSS;
        is_worth_it.then(|| ((-(reserved + device) * 100.0).round() as i64, row))
    });
    worth_it.min_by_key(|(loss, row)| (*loss, row.calls)).map(|(_, row)| row)
}

/// Returns the best settings that work on every device. If there are none, returns those that need the smallest device,
/// however much they reserve on a larger one.
fn best_everywhere<'a>(now: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    let rows = || rows.iter().filter(|row| !row.setting.needs_virtual_memory());
    let small = || {
        let smallest = rows().min_by_key(|row| row.smallest.unwrap_or(u64::MAX))?;
        gains(now, smallest).filter(|(_, device)| *device >= WORTH).map(|_| smallest)
    };
    best(now, rows()).or_else(small)
}

/// Returns the shares by which the reserved memory and the smallest device become smaller.
fn gains(now: &Row, row: &Row) -> Option<(f64, f64)> {
    let less = |own: u64, now: u64| 1.0 - own as f64 / now as f64;
    match (row.smallest?, now.smallest) {
        (own, Some(now_smallest)) => Some((less(row.reserved, now.reserved), less(own, now_smallest))),
        (_, None) => Some((0.0, 1.0)), // with these settings the job completes
    }
}

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", wrapped(&self.verdict()), self.numbers(), wrapped(&self.reason()))?;
        if let Some(best) = self.best {
            let texts = [how(&best.setting), self.elsewhere(best)];
            texts.iter().filter(|text| !text.is_empty()).try_for_each(|text| write!(f, "\n{}", wrapped(text)))?;
        }
        Ok(())
    }
}

impl Advice<'_> {
    fn verdict(&self) -> String {
        let job = &self.comparison.name;
        if self.comparison.rows.iter().all(|row| row.smallest.is_none()) {
            return format!(
                "No setting helps: {job} runs out of memory under every setting, however large the device is."
            );
        }
        let Some(best) = self.best else {
            let keep = match self.now.setting.name.as_str() {
                DEFAULT => "the default settings",
                Setting::RECORDED => "the recorded settings",
                name => name,
            };
            return format!("Keep {keep}: nothing else saves {:.0} % of the memory of {job}.", WORTH * 100.0);
        };
        let set = match best.setting.name.as_str() {
            DEFAULT => "Use the default settings".to_owned(),
            name => format!("Set {name}"),
        };
        match gains(self.now, best) {
            Some((reserved, device)) if self.now.smallest.is_some() => {
                format!("{set}: {job} then {}, and {}.", reserves(reserved), fits(device))
            }
            _ => format!("{set}: {job} then completes; now it runs out of memory."),
        }
    }

    fn numbers(&self) -> String {
        let shown = [Some(self.now), self.best, self.everywhere].into_iter().flatten();
        settings(self.comparison, shown)
    }

    fn reason(&self) -> String {
        let Row { requested, reserved, in_pieces, .. } = *self.now;
        let lost = reserved.saturating_sub(requested);
        if lost == 0 {
            return "Why: everything reserved at the peak was requested.".to_owned();
        }
        let pieces = match in_pieces {
            0 => String::new(),
            some if some >= lost => ", in free pieces between blocks in use".to_owned(),
            some => format!(", up to {} of it in free pieces between blocks in use", Bytes(some)),
        };
        let effect = match self.best.map(|best| &best.setting) {
            Some(Setting { name, effect, .. }) if !effect.is_empty() => {
                format!(" The setting {name} {effect}.")
            }
            _ => String::new(),
        };
        format!(
            "Why: at its peak it requests {}, and {} are reserved for that now. The difference of {} ({}) is \
             lost{pieces}.{effect}",
            Bytes(requested),
            Bytes(reserved),
            Bytes(lost),
            percent(lost, reserved)
        )
    }

    /// Recommends settings for devices on which the best ones do not work.
    fn elsewhere(&self, best: &Row) -> String {
        if !best.setting.needs_virtual_memory() {
            return String::new();
        }
        let there = match self.everywhere.and_then(|row| Some((row, gains(self.now, row)?))) {
            Some((row, (reserved, device))) => {
                let name = if row.setting.name == DEFAULT { "the default" } else { row.setting.text() };
                format!("{name} {}, and {}", fits(device), reserves(reserved))
            }
            None => format!("nothing saves {:.0} %", WORTH * 100.0),
        };
        format!("This needs a device with virtual memory, which OpenCL does not have. Without it, {there}.")
    }
}

fn reserves(gain: f64) -> String {
    match (gain * 100.0).round() as i64 {
        0 => "reserves as much as now".to_owned(),
        less @ 1.. => format!("reserves {less} % less memory"),
        more => format!("reserves {} % more memory", -more),
    }
}

fn fits(gain: f64) -> String {
    match (gain * 100.0).round() as i64 {
        0 => "needs as large a device as now".to_owned(),
        less @ 1.. => format!("fits on a device that is {less} % smaller"),
        more => format!("needs a device that is {} % larger", -more),
    }
}

fn how(setting: &Setting) -> String {
    match setting.name.as_str() {
        DEFAULT => "How: leave ACCELERATOR_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and \
                    PYTORCH_ALLOC_CONF unset, and set nothing in code."
            .to_owned(),
        name => format!(
            "How: set ACCELERATOR_ALLOC_CONF={name} in the environment, or call \
             accelerator::memory::set_allocator_settings(\"{name}\") before the first allocation."
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(settings: &str, reserved: u64, smallest: Option<u64>, calls: u64) -> Row {
        let setting = Setting::read(settings).unwrap();
        let (time, completes) = (Duration::ZERO, smallest.is_some());
        Row { setting, requested: 50, reserved, in_pieces: 0, calls, time, completes, smallest }
    }

    fn chosen(others: &[Row]) -> Option<&str> {
        let now = row("", 100, Some(100), 10);
        best(&now, others.iter()).map(|row| row.setting.name.as_str())
    }

    #[test]
    fn what_gains_little_or_loses_elsewhere_is_not_chosen() {
        assert_eq!(chosen(&[row("caching:False", 96, Some(96), 1)]), None);
        assert_eq!(chosen(&[row("caching:False", 103, Some(60), 1)]), None);
        assert_eq!(chosen(&[row("caching:False", 50, None, 1)]), None);
        assert_eq!(chosen(&[row("caching:False", 100, Some(95), 1)]), Some("caching:False"));
    }

    #[test]
    fn of_those_that_save_the_same_the_one_with_fewer_calls_is_chosen() {
        let rows = [
            row("caching:False", 80, Some(90), 300),
            row("device_side_reuse:True", 80, Some(90), 20),
            row("large_segment_size_mb:30", 90, Some(90), 1),
        ];
        assert_eq!(chosen(&rows), Some("device_side_reuse:True"));
    }
}
