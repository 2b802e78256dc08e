use accelerator_core::Bytes;
use plotters::prelude::DrawingBackend;

use super::PlotError;
use super::canvas::{Anchor, Canvas, Rect, TEXT};
use crate::grouped;
use crate::picture::{Largest, Profile, Series, power, size_bins};

const BAR: i32 = 24;
const HEAD: i32 = 74;
const LONGEST_NAME: i32 = 400;
const MOST_BARS: usize = 60;

/// Returns the height that the bars need.
pub(super) fn height(profile: &Profile, top: usize) -> u32 {
    let bars = profile.largest(top.min(MOST_BARS)).len().max(1);
    HEAD as u32 + 12 + BAR as u32 * bars as u32
}

/// Draws operators by the memory that a call added, with the name on the left and the bytes on the right.
pub(super) fn largest<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    profile: &Profile,
    title: &str,
    top: usize,
) -> Result<(), PlotError> {
    let rect = canvas.whole();
    canvas.headline(rect, title, &profile.title)?;
    let largest = profile.largest(top.min(MOST_BARS));
    let Some(most) = largest.first().map(|largest| largest.bytes) else {
        return canvas.nothing(rect, "no operator added any memory");
    };
    let text = |largest: &Largest| match largest.calls {
        1 => Bytes(largest.bytes).to_string(),
        calls => format!("{} · {} calls", Bytes(largest.bytes), grouped(calls)),
    };
    let texts: Vec<_> = largest.iter().map(text).collect();
    let right = texts.iter().map(|text| canvas.width(text, TEXT)).collect::<Result<Vec<_>, _>>()?;
    let right = rect.right - 16 - right.into_iter().max().unwrap_or(0) - 8;
    let names = largest.iter().map(|largest| canvas.shortened(&largest.name, TEXT, LONGEST_NAME));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let widths = names.iter().map(|name| canvas.width(name, TEXT)).collect::<Result<Vec<_>, _>>()?;
    let left = rect.left + 26 + widths.into_iter().max().unwrap_or(0);
    for (number, ((largest, text), name)) in largest.iter().zip(&texts).zip(&names).enumerate() {
        let y = HEAD + BAR * number as i32 + BAR / 2;
        canvas.text(name, (left - 10, y), TEXT, Anchor::End, canvas.palette.text)?;
        let width = (largest.bytes as f64 / most as f64 * f64::from(right - left)).round() as i32;
        let bar = Rect { left, top: y - 8, right: left + width.max(1), bottom: y + 8 };
        canvas.rect(bar, canvas.palette.series(Series::Allocated))?;
        canvas.text(text, (bar.right + 8, y), TEXT, Anchor::Start, canvas.palette.quiet)?;
    }
    Ok(())
}

/// Draws allocations by powers of two: their number, and below that their total bytes.
pub(super) fn sizes<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    profile: &Profile,
    title: &str,
) -> Result<(), PlotError> {
    let rect = canvas.whole();
    let top = canvas.headline(rect, title, &profile.title)?;
    let bins = size_bins(&profile.spans);
    if bins.is_empty() {
        return canvas.nothing(rect, "no allocations");
    }
    let legend = [
        (
            Some(canvas.palette.series(Series::Allocated)),
            format!("count, {} in all", grouped(profile.spans.len() as u64)),
        ),
        (Some(canvas.palette.series(Series::Active)), "total bytes".to_owned()),
    ];
    let top = top + canvas.legend(rect, top, &legend)? + 8;
    let middle = (top + rect.bottom - 44) / 2;
    let (left, width) = (rect.left + 16, rect.width() - 32);
    let edge = |bin: usize| left + width * bin as i32 / bins.len() as i32;
    // Show as many labels as fit.
    let every = (64 * bins.len()).div_ceil(width.max(1) as usize);
    let counts = bins.iter().map(|bin| (bin.count, compact(bin.count)));
    let bytes = bins.iter().map(|bin| (bin.bytes, short(bin.bytes)));
    let panels = [
        (counts.collect::<Vec<_>>(), top, middle, Series::Allocated),
        (bytes.collect(), middle, rect.bottom - 44, Series::Active),
    ];
    for (values, top, bottom, series) in panels {
        let most = values.iter().map(|(value, _)| *value).max().unwrap_or(0).max(1);
        for (number, (value, text)) in values.iter().enumerate().filter(|(_, (value, _))| *value > 0) {
            let (start, end) = (edge(number), edge(number + 1));
            let height = (*value as f64 / most as f64 * f64::from(bottom - top - 26)).round() as i32;
            let bar = Rect { left: start + 2, top: bottom - height.max(1), right: end - 2, bottom };
            canvas.rect(bar, canvas.palette.series(series))?;
            if canvas.width(text, TEXT - 2)? <= end - start - 4 {
                let at = ((start + end) / 2, bar.top - 10);
                canvas.text(text, at, TEXT - 2, Anchor::Middle, canvas.palette.quiet)?;
            }
        }
        canvas.line(&[(left, bottom), (left + width, bottom)], canvas.palette.quiet, 1)?;
    }
    for (number, bin) in bins.iter().enumerate().step_by(every) {
        let anchor = if number == 0 { Anchor::Start } else { Anchor::Middle };
        let at = (edge(number), rect.bottom - 30);
        canvas.text(&power(bin.power), at, TEXT - 1, anchor, canvas.palette.quiet)?;
    }
    let about = "each bar: sizes from its left edge to twice that";
    canvas.text(about, (left + width, rect.bottom - 11), TEXT - 2, Anchor::End, canvas.palette.quiet)
}

/// Formats a number with at most three digits: `999`, `12k`, `3.4M`.
pub(super) fn compact(number: u64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let thousands = number.checked_ilog10().unwrap_or(0) / 3;
    let value = number as f64 / 1000f64.powi(thousands as i32);
    let unit = UNITS[thousands as usize];
    if thousands > 0 && value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Formats bytes in little space.
fn short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let power = bytes.checked_ilog2().unwrap_or(0) / 10;
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let unit = UNITS[power as usize];
    if power > 0 && value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}
