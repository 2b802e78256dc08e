use accelerator_core::Bytes;
use plotters::prelude::DrawingBackend;

use super::canvas::{Anchor, Canvas, Rect, TEXT};
use super::scale::{Axis, Scale};
use super::{Along, PlotError};
use crate::grouped;
use crate::picture::{Marker, Profile, Series, outline};
use crate::tracker::FORWARD_BACKWARD_BOUNDARY;

/// The capacity is drawn only if it is at most this many times higher than the curves. Otherwise it would flatten them.
const CAPACITY_WITHIN: f64 = 1.6;

/// The maximum number of rows of marker names.
const MARKER_ROWS: usize = 3;
const MARKER_ROW: i32 = 20;

/// Room to the right of the curves, for the ends of labels.
const RIGHT_MARGIN: i32 = 28;

/// Lines of markers that are closer to each other than this are paler, so that curves stay visible between them.
const CROWDED: i32 = 8;
/// Lines that are closer than this would fill an area, and are omitted.
const TOO_CLOSE: i32 = 2;

/// Draws all series in one figure, then each on its own.
pub(super) fn draw_four<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, profile: &Profile) -> Result<(), PlotError> {
    let Rect { right, bottom, .. } = canvas.whole();
    let figures = [&Series::ALL[..], &[Series::Allocated], &[Series::Active], &[Series::Reserved]];
    let titles = ["All", "Allocated", "Active", "Reserved"];
    for (number, (figure, title)) in figures.into_iter().zip(titles).enumerate() {
        let (column, row) = (number as i32 % 2, number as i32 / 2);
        let (width, height) = (right / 2, bottom / 2);
        let (left, top) = (column * width, row * height);
        let rect = Rect { left, top, right: left + width, bottom: top + height };
        draw(canvas, rect, profile, title, figure, Along::Calls)?;
    }
    Ok(())
}

/// Draws curves of memory in steps, since memory stays constant until the next operator.
pub(super) fn draw<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    rect: Rect,
    profile: &Profile,
    title: &str,
    series: &[Series],
    along: Along,
) -> Result<(), PlotError> {
    let mut top = rect.top + canvas.headline(rect, title, &profile.title)?;
    if profile.samples.is_empty() {
        return canvas.nothing(rect, "no operators were recorded");
    }
    let highest = series.iter().filter_map(|series| profile.peak(*series)).map(|(_, peak)| peak).max().unwrap_or(0);
    let capacity = profile.capacity.filter(|capacity| *capacity as f64 <= highest as f64 * CAPACITY_WITHIN);
    let top_value = (highest.max(capacity.unwrap_or(0)) as f64 * 1.04) as u64;

    let positions: Vec<u64> = match along {
        Along::Calls => (0..profile.samples.len() as u64).collect(),
        Along::Time => profile.times(),
    };
    let end = positions.last().map_or(1, |last| match along {
        Along::Calls => last + 1,
        // The duration of the last state is unknown, but the state must be visible.
        Along::Time => last.saturating_add(last.div_ceil(100).max(1)),
    });
    let y_scale = Scale::new(Axis::Bytes, top_value.max(1), 6);
    let labels = y_scale.ticks.iter().map(|tick| canvas.width(&label(&y_scale, tick), TEXT));
    let labels = labels.collect::<Result<Vec<_>, _>>()?;
    let left = rect.left + 26 + labels.into_iter().max().unwrap_or(0).max(20);
    let mut plot = Rect { left, top, right: rect.right - RIGHT_MARGIN, bottom: rect.bottom - 52 };
    let frame = Frame { canvas, plot, end, top_value: top_value.max(1) };

    let markers = frame.markers(profile, &positions)?;
    let several = series.len() > 1;
    let mut legend: Vec<_> = series
        .iter()
        .map(|series| {
            let peak = profile.peak(*series).map_or(0, |(_, peak)| peak);
            let equal = if several && *series == Series::Active && profile.is_active_allocated() {
                " (as allocated)"
            } else {
                ""
            };
            (Some(canvas.palette.series(*series)), format!("{}, peak {}{equal}", series.name(), Bytes(peak)))
        })
        .collect();
    if let Some(bytes) = profile.capacity {
        let color = capacity.map(|_| canvas.palette.text);
        legend.push((color, format!("capacity {}", Bytes(bytes))));
    }
    legend.extend(markers.note().map(|note| (None, note)));
    top += canvas.legend(rect, top, &legend)?;
    plot.top = top + 10 + markers.rows as i32 * MARKER_ROW;
    let frame = Frame { plot, ..frame };

    frame.grid(&y_scale)?;
    let x_scale = match along {
        Along::Calls => Scale::new(Axis::Calls, end, (plot.width() / 110).max(2) as usize),
        Along::Time => Scale::new(Axis::Time, end, (plot.width() / 90).max(2) as usize),
    };
    let x_name = match along {
        Along::Calls => "operator calls".to_owned(),
        Along::Time => format!("time, {}", x_scale.unit),
    };
    frame.bottom(&x_scale, &x_name)?;
    frame.marker_lines(&markers)?;
    // Draw the largest series first, so that smaller ones stay visible.
    for series in series.iter().rev() {
        frame.curve(profile, &positions, *series)?;
    }
    if let Some(capacity) = capacity {
        let y = frame.y(capacity);
        canvas.line(&[(plot.left, y), (plot.right, y)], canvas.palette.text, 1)?;
    }
    Ok(())
}

/// Returns the label of a tick, with the unit.
fn label(scale: &Scale, (value, text): &(u64, String)) -> String {
    if *value == 0 { "0".to_owned() } else { format!("{text} {}", scale.unit) }
}

/// The part of a figure that contains the curves.
#[derive(Clone, Copy)]
struct Frame<'a, 'b, DB: DrawingBackend> {
    canvas: &'a Canvas<'b, DB>,
    plot: Rect,
    /// The position at the right edge.
    end: u64,
    top_value: u64,
}

/// The lines of markers, and the positions of their names.
struct Placed {
    /// The position of each line, from right to left, and whether it is the boundary of forward and backward pass.
    lines: Vec<(i32, bool)>,
    names: Vec<PlacedName>,
    rows: usize,
    /// The number of markers.
    all: usize,
}

impl Placed {
    /// Returns a note about names or lines that were omitted.
    fn note(&self) -> Option<String> {
        let Self { lines, names, all, .. } = self;
        let count = |count: usize| grouped(count as u64);
        match names.len() {
            named if named == *all => None,
            _ if lines.is_empty() => Some(format!("{} markers, too close to be shown", count(*all))),
            named => Some(format!("{} of {} markers named", count(named), count(*all))),
        }
    }
}

struct PlacedName {
    text: String,
    x: i32,
    row: usize,
    anchor: Anchor,
    is_boundary: bool,
}

impl<DB: DrawingBackend> Frame<'_, '_, DB> {
    fn x(&self, position: u64) -> i32 {
        self.plot.left + (position.min(self.end) as f64 / self.end as f64 * f64::from(self.plot.width())).round() as i32
    }

    fn y(&self, value: u64) -> i32 {
        self.plot.bottom - (value as f64 / self.top_value as f64 * f64::from(self.plot.height())).round() as i32
    }

    fn grid(&self, scale: &Scale) -> Result<(), PlotError> {
        let Self { canvas, plot, .. } = *self;
        for tick in &scale.ticks {
            let y = self.y(tick.0);
            let color = if tick.0 == 0 { canvas.palette.quiet } else { canvas.palette.grid };
            canvas.line(&[(plot.left, y), (plot.right, y)], color, 1)?;
            canvas.text(&label(scale, tick), (plot.left - 10, y), TEXT, Anchor::End, canvas.palette.quiet)?;
        }
        Ok(())
    }

    fn bottom(&self, scale: &Scale, name: &str) -> Result<(), PlotError> {
        let Self { canvas, plot, .. } = *self;
        for (value, text) in &scale.ticks {
            let x = self.x(*value);
            canvas.line(&[(x, plot.bottom), (x, plot.bottom + 5)], canvas.palette.quiet, 1)?;
            // The last label must not extend beyond the picture.
            let x = x.min(plot.right + RIGHT_MARGIN - 2 - canvas.width(text, TEXT)? / 2);
            canvas.text(text, (x, plot.bottom + 16), TEXT, Anchor::Middle, canvas.palette.quiet)?;
        }
        canvas.text(name, (plot.right, plot.bottom + 37), TEXT, Anchor::End, canvas.palette.quiet)
    }

    fn curve(&self, profile: &Profile, positions: &[u64], series: Series) -> Result<(), PlotError> {
        let samples = &profile.samples;
        let column = |at: usize| (self.x(positions[at]) - self.plot.left).max(0) as usize;
        let chosen = outline(samples.len(), column, |at| series.of(&samples[at]));
        let mut points: Vec<(i32, i32)> = Vec::with_capacity(2 * chosen.len() + 1);
        for at in chosen {
            let next = (self.x(positions[at]), self.y(series.of(&samples[at])));
            if let Some((_, y)) = points.last().copied() {
                points.push((next.0, y));
            }
            points.push(next);
        }
        if let Some((_, y)) = points.last().copied() {
            points.push((self.plot.right, y));
        }
        points.dedup();
        let color = self.canvas.palette.series(series);
        if let (Some(first), Some(last), Series::Allocated) = (points.first(), points.last(), series) {
            let ground = [(last.0, self.plot.bottom), (first.0, self.plot.bottom)];
            let under: Vec<_> = points.iter().copied().chain(ground).collect();
            self.canvas.area(&under, color, 0.14)?;
        }
        self.canvas.line(&points, color, 2)
    }

    /// Places all names, shortened as little as possible, or some of them if not all fit.
    fn markers(&self, profile: &Profile, positions: &[u64]) -> Result<Placed, PlotError> {
        let mut markers: Vec<_> = profile
            .markers
            .iter()
            .map(|marker| {
                let position = positions.get(marker.call).copied().unwrap_or(self.end);
                (self.x(position), marker)
            })
            .collect();
        markers.sort_by_key(|(x, _)| std::cmp::Reverse(*x));
        for width in [180, 120, 80, 60] {
            let placed = self.placed(&markers, width, MARKER_ROWS)?;
            if placed.names.len() == placed.all {
                return Ok(placed);
            }
        }
        // Not all names fit, so place some of them in one row.
        let placed = self.placed(&markers, 120, 1)?;
        if placed.lines.len() as i32 * TOO_CLOSE > self.plot.width() {
            return Ok(Placed { lines: Vec::new(), names: Vec::new(), rows: 0, ..placed });
        }
        Ok(placed)
    }

    /// Places names from right to left. A name begins at its line, so the line of a name in a higher row does not cross
    /// names below it.
    fn placed(&self, markers: &[(i32, &Marker)], longest: i32, rows: usize) -> Result<Placed, PlotError> {
        const APART: i32 = 8;
        let right_end = self.plot.right + RIGHT_MARGIN - 8;
        let mut placed = Placed { lines: Vec::new(), names: Vec::new(), rows: 0, all: markers.len() };
        let mut limits = vec![right_end + APART; rows];
        let mut last = None;
        for (x, marker) in markers {
            let (x, is_boundary) = (*x, &*marker.name == FORWARD_BACKWARD_BOUNDARY);
            match placed.lines.last_mut().filter(|(line, _)| *line == x) {
                Some(line) => line.1 |= is_boundary,
                None => placed.lines.push((x, is_boundary)),
            }
            // The line reaches up to the first row in which a name blocks it.
            let reached = limits.iter().take_while(|limit| x < **limit).count();
            if reached == 0 || last == Some(x) {
                continue; // before computing its width, since there may be many
            }
            last = Some(x);
            let text = self.canvas.ended(&marker.name, TEXT, longest)?;
            let width = self.canvas.width(&text, TEXT)?;
            let room = |right: i32| move |limit: &i32| right + APART <= *limit;
            // A name that ends at its line is placed as high as possible, out of the way of the lines on its left.
            let (row, anchor, start) = match x + 3 + width <= right_end {
                true => (limits[..reached].iter().position(room(x + 3 + width)), Anchor::Start, x),
                false => (limits[..reached].iter().rposition(room(x)), Anchor::End, x - 3 - width),
            };
            let Some(row) = row else { continue };
            limits[..row].iter_mut().for_each(|limit| *limit = (*limit).min(x));
            limits[row] = start;
            placed.rows = placed.rows.max(row + 1);
            placed.names.push(PlacedName { text, x, row, anchor, is_boundary });
        }
        Ok(placed)
    }

    fn marker_lines(&self, markers: &Placed) -> Result<(), PlotError> {
        let Self { canvas, plot, .. } = *self;
        let color = |is_boundary| if is_boundary { canvas.palette.warning } else { canvas.palette.marker };
        let opacity = if markers.lines.len() as i32 * CROWDED > plot.width() { 0.35 } else { 1.0 };
        for (x, is_boundary) in &markers.lines {
            let ends = [(*x, plot.top), (*x, plot.bottom)];
            canvas.translucent_line(&ends, color(*is_boundary), 1, opacity)?;
        }
        for name in &markers.names {
            let y = plot.top - MARKER_ROW * name.row as i32 - MARKER_ROW / 2;
            canvas.line(&[(name.x, y - 7), (name.x, plot.top)], color(name.is_boundary), 1)?;
            let x = if matches!(name.anchor, Anchor::Start) { name.x + 3 } else { name.x - 3 };
            let color = if name.is_boundary { canvas.palette.warning } else { canvas.palette.quiet };
            canvas.text(&name.text, (x, y), TEXT, name.anchor, color)?;
        }
        Ok(())
    }
}
