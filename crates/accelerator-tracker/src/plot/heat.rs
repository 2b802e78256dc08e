use plotters::prelude::DrawingBackend;

use super::PlotError;
use super::bars::compact;
use super::canvas::{Anchor, Canvas, Rect, TEXT};
use crate::grouped;
use crate::picture::{Profile, grid, power};

const ROW: i32 = 24;
const HEAD: i32 = 108;
const LEFT: i32 = 190;

/// Returns the height that the rows need.
pub(super) fn height(profile: &Profile) -> u32 {
    (HEAD + ROW * grid(&profile.spans).cells.len().max(2) as i32 + 50) as u32
}

/// Draws a cell for each size and lifetime. The more allocations, the darker the cell (the lighter on a dark
/// background).
pub(super) fn draw<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    profile: &Profile,
    title: &str,
) -> Result<(), PlotError> {
    let rect = canvas.whole();
    let top = canvas.headline(rect, title, &profile.title)?;
    let grid = grid(&profile.spans);
    let most = grid.cells.iter().flatten().copied().max().unwrap_or(0);
    if most == 0 {
        return canvas.nothing(rect, "no allocations");
    }
    // The steps of the ramp are logarithmic, so that a few allocations are visible next to many.
    let ramp = canvas.palette.ramp;
    let bounds: Vec<u64> =
        (1..=ramp.len()).map(|step| (most as f64).powf(step as f64 / ramp.len() as f64).round() as u64).collect();
    let level = |count: u64| bounds.iter().position(|bound| count <= *bound).unwrap_or(ramp.len() - 1);
    let mut legend = vec![(None, "allocations:".to_owned())];
    let mut from = 1;
    for (color, to) in ramp.iter().zip(bounds.iter().copied()) {
        if to < from {
            continue;
        }
        let text = if from == to { grouped(from) } else { format!("{}–{}", grouped(from), grouped(to)) };
        legend.push((Some(*color), text));
        from = to + 1;
    }
    canvas.legend(rect, top, &legend)?;

    let columns = grid.cells.first().map_or(1, Vec::len);
    let right = rect.right - 16;
    let edge = |column: usize| LEFT + (right - LEFT) * column as i32 / columns as i32;
    let rows = grid.cells.len();
    for (number, row) in grid.cells.iter().enumerate() {
        let top = HEAD + ROW * number as i32;
        let middle = top + ROW / 2;
        let name = match number + 1 {
            last if last == rows => "alive at the end".to_owned(),
            1 => "freed by the next".to_owned(),
            next => format!("{} to {} operators", compact(1 << number), compact((1 << next) - 1)),
        };
        canvas.text(&name, (LEFT - 10, middle), TEXT - 1, Anchor::End, canvas.palette.quiet)?;
        for (column, count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
            let cell =
                Rect { left: edge(column) + 1, top: top + 1, right: edge(column + 1) - 1, bottom: top + ROW - 1 };
            let level = level(*count);
            canvas.rect(cell, ramp[level])?;
            let text = compact(*count);
            if canvas.width(&text, TEXT - 2)? < cell.width() {
                let color = if level < ramp.len() / 2 { canvas.palette.text } else { canvas.palette.background };
                canvas.text(&text, ((cell.left + cell.right) / 2, middle), TEXT - 2, Anchor::Middle, color)?;
            }
        }
    }
    let bottom = HEAD + ROW * rows as i32;
    canvas.line(&[(LEFT, bottom), (right, bottom)], canvas.palette.quiet, 1)?;
    let every = (64 * columns).div_ceil((right - LEFT).max(1) as usize);
    for column in (0..columns).step_by(every) {
        let anchor = if column == 0 { Anchor::Start } else { Anchor::Middle };
        let text = power(grid.least_size + column as u32);
        canvas.text(&text, (edge(column), bottom + 15), TEXT - 1, anchor, canvas.palette.quiet)?;
    }
    let about = "columns: sizes from the left edge to twice that; rows: operators until the free";
    canvas.text(about, (right, bottom + 36), TEXT - 2, Anchor::End, canvas.palette.quiet)
}
