use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use accelerator_core::printable;
use accelerator_tracker::Limits;
use indicatif::{ProgressBar, ProgressStyle};

use super::replay::input;
use crate::compare::{Comparison, LEGEND, Setting, Trace, markdown, summary, text};
use crate::console::warn;
use crate::convert::Options;
use crate::failure::Failure;
use crate::trace::BUNDLED;

/// Runs `accel replay --compare`.
pub(super) fn run(
    paths: &[PathBuf],
    device: Option<u32>,
    capacity: Option<u64>,
    further: &[Setting],
    as_markdown: bool,
    limits: Limits,
) -> Result<ExitCode, Failure> {
    let settings = Setting::compared(further.iter().cloned())?;
    let progress = progress();
    let mut comparisons = Vec::new();
    for trace in traces(paths, device, limits) {
        let trace = trace?;
        progress.set_message(trace.name.clone());
        let mut own = settings.clone();
        own.extend(
            trace.recorded.clone().filter(|recorded| settings.iter().all(|setting| setting.config != recorded.config)),
        );
        let comparison = Comparison::of(&trace, &own, capacity, &progress)?;
        if !as_markdown {
            progress.suspend(|| write!(io::stdout(), "{}", text(&comparison)))?;
        }
        comparisons.push(comparison);
    }
    progress.finish_and_clear();
    let mut out = io::stdout().lock();
    match (as_markdown, comparisons.len()) {
        (true, _) => write!(out, "{}", markdown(&comparisons, &settings))?,
        (false, 1) => write!(out, "{LEGEND}")?,
        (false, _) => write!(out, "{LEGEND}\n{}", summary(&comparisons, &settings))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the traces one by one, or the bundled ones if no paths are given.
fn traces(
    paths: &[PathBuf],
    device: Option<u32>,
    limits: Limits,
) -> Box<dyn Iterator<Item = Result<Trace, Failure>> + '_> {
    match paths {
        [] => Box::new(BUNDLED.iter().map(|bundled| Trace::read(bundled.source()?))),
        paths => Box::new(paths.iter().map(move |path| trace(path, device, limits))),
    }
}

/// Reads the requests of a program from a trace or a snapshot.
pub(super) fn trace(path: &Path, device: Option<u32>, limits: Limits) -> Result<Trace, Failure> {
    let options = Options { device, settings: false, refusals: false };
    let (source, converted) = input(Some(path), &options, limits)?;
    let trace = Trace::read(source)?;
    if trace.left_out > 0 {
        warn(&format!(
            "{}: ignored {} lines that change the settings, the size of the device or the failures of its driver",
            printable(path),
            trace.left_out
        ));
    }
    Ok(match converted {
        Some(converted) => trace.recorded_with(converted.config),
        None => trace,
    })
}

/// Returns a progress bar, which is shown if standard error is a terminal.
pub(super) fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} replays, {msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
