use std::collections::HashMap;

use accelerator_core::Bytes;
use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;

use super::canvas::{Anchor, Canvas, Rect, TEXT};
use super::palette::Palette;
use super::rows::{Group, Piece, groups};
use super::{ColorBy, PlotError};
use crate::grouped;
use crate::picture::{MapBlock, MapSegment, Profile, Series};
use crate::snapshot::{BlockState, PoolKind};

const ROW: i32 = 22;
const GAP: i32 = 5;
const GROUP_HEAD: i32 = 34;
const HEAD: i32 = 62;
const LEGEND_ROW: i32 = 22;

/// The approximate number of rows. There are at most twice as many.
const ROWS: u64 = 20;

const ALIASED: &str = "used by an alias";
const PAUSED: &str = "paused";

/// The minimum width of a block. Narrower blocks are drawn together, so that a picture of many blocks stays small.
const NARROWEST: i32 = 2;

fn moment(profile: &Profile, moment: usize) -> &[MapSegment] {
    profile.moments.get(moment).map_or(&[], |moment| &moment.segments)
}

/// Returns the height of the legend.
fn legend(by: ColorBy, segments: &[MapSegment]) -> i32 {
    let rows = match by {
        ColorBy::State => 1,
        ColorBy::Size => 2,
        ColorBy::Scope => 3,
    };
    // Aliases and paused memory need additional entries in the legend, or longer ones.
    (rows + i32::from(segments.iter().any(|segment| segment.is_alias || segment.is_paused))) * LEGEND_ROW
}

/// Returns the height that the rows need.
pub(super) fn height(profile: &Profile, number: usize, by: ColorBy) -> u32 {
    let groups = groups(moment(profile, number), ROWS);
    let rows = groups.iter().map(|group| GROUP_HEAD + group.rows.len() as i32 * (ROW + GAP));
    (HEAD + legend(by, moment(profile, number)) + rows.sum::<i32>().max(40) + 12) as u32
}

/// Draws the segments. The width of segments and blocks is proportional to their bytes.
pub(super) fn draw<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    profile: &Profile,
    title: &str,
    number: usize,
    by: ColorBy,
) -> Result<(), PlotError> {
    let rect = canvas.whole();
    canvas.headline(rect, title, &profile.title)?;
    let segments = moment(profile, number);
    let groups = groups(segments, ROWS);
    if groups.is_empty() {
        return canvas.nothing(rect, "no segments");
    }
    let coloring = Coloring::new(segments, by, canvas.palette);
    // The legend has three names in each row.
    let short = |text| canvas.shortened(text, TEXT, (rect.width() - 32) / 3 - 42);
    let entries = coloring.legend.iter().map(|(color, text)| Ok((*color, short(text)?)));
    canvas.legend(rect, HEAD, &entries.collect::<Result<Vec<_>, PlotError>>()?)?;
    let mut top = HEAD + legend(by, segments);
    let (left, right) = (rect.left + 16, rect.right - 16);
    for group in &groups {
        let text = canvas.shortened(&headline(group, profile), TEXT, right - left)?;
        canvas.text(&text, (left, top + GROUP_HEAD / 2 + 2), TEXT, Anchor::Start, canvas.palette.text)?;
        top += GROUP_HEAD;
        let x = |bytes: u64| left + (bytes as f64 / group.row_bytes as f64 * f64::from(right - left)).round() as i32;
        for row in &group.rows {
            for piece in row {
                draw_segment(canvas, piece, top, &x, &coloring)?;
            }
            top += ROW + GAP;
        }
    }
    Ok(())
}

fn headline(group: &Group<'_>, profile: &Profile) -> String {
    let count = group.segments.len() as u64;
    if group.is_alias {
        let blocks = group.segments.iter().map(|segment| segment.blocks.len() as u64).sum();
        let (bytes, row) = (Bytes(group.reserved()), Bytes(group.row_bytes));
        let what = if blocks == 1 { "block" } else { "blocks" };
        let blocks = grouped(blocks);
        return format!("Aliases: {bytes} in {blocks} {what}, which is memory of the pools; a row is {row}");
    }
    let pool = match group.pool {
        PoolKind::Large => "Large pool",
        PoolKind::Small => "Small pool",
    };
    let private = group.mem_pool.filter(|pool| !pool.is_default());
    let private = private.map(|pool| format!(" of private pool {}", profile.pool(pool))).unwrap_or_default();
    let stream = group.stream.map_or("all streams".to_owned(), |stream| format!("stream {stream}"));
    let sum = |bytes: fn(&MapSegment) -> u64| {
        group.segments.iter().fold(0, |sum: u64, segment| sum.saturating_add(bytes(segment)))
    };
    let allocated = sum(|segment| segment.present(BlockState::Allocated));
    let paused = match sum(MapSegment::paused) {
        0 => String::new(),
        bytes => format!(", {} {PAUSED}", Bytes(bytes)),
    };
    let segments = if count == 1 { "segment" } else { "segments" };
    format!(
        "{pool}{private}, {stream}: {} in {} {segments}, {} allocated{paused}; a row is {}",
        Bytes(group.reserved()),
        grouped(count),
        Bytes(allocated),
        Bytes(group.row_bytes)
    )
}

/// Draws a segment. Narrow blocks are drawn as one, in the colour of the largest of them.
fn draw_segment<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    piece: &Piece<'_>,
    top: i32,
    x: &impl Fn(u64) -> i32,
    coloring: &Coloring<'_>,
) -> Result<(), PlotError> {
    let size = piece.blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.size));
    // Leave one pixel between segments.
    let end = (x(piece.start.saturating_add(size)) - 1).max(x(piece.start) + 1);
    let mut at = piece.start;
    let mut left = x(at);
    let mut run: Option<(RGBColor, u64)> = None;
    let mut pending: Vec<(i32, RGBColor)> = Vec::new(); // right ends
    for block in piece.blocks {
        at = at.saturating_add(block.size);
        let right = x(at).min(end);
        let color = if piece.is_paused { canvas.palette.paused } else { coloring.color(block) };
        let largest = match run {
            Some((_, size)) if size >= block.size => run,
            _ => Some((color, block.size)),
        };
        run = largest;
        if right - left >= NARROWEST || right == end && right > left {
            let (color, _) = run.take().unwrap_or((color, 0));
            match pending.last_mut() {
                Some((end, last)) if *last == color && !coloring.apart => *end = right,
                _ => pending.push((right, color)),
            }
            left = right;
        }
    }
    let mut left = x(piece.start);
    if pending.is_empty() {
        pending.push((end, run.map_or(canvas.palette.free, |(color, _)| color)));
    }
    for (right, color) in pending {
        // Leave a gap between blocks that are wide enough.
        let gap = i32::from(coloring.apart && right - left > 4 && right < end);
        canvas.rect(Rect { left, top, right: right - gap, bottom: top + ROW }, color)?;
        left = right;
    }
    Ok(())
}

/// The colours of blocks.
struct Coloring<'a> {
    by: ColorBy,
    palette: &'static Palette,
    scopes: HashMap<&'a str, RGBColor>,
    largest: u64,
    legend: Vec<(Option<RGBColor>, String)>,
    /// Whether there is a gap between blocks of the same colour.
    apart: bool,
}

impl<'a> Coloring<'a> {
    fn new(segments: &'a [MapSegment], by: ColorBy, palette: &'static Palette) -> Self {
        let present = segments.iter().filter(|segment| !segment.is_paused);
        let blocks = || present.clone().flat_map(|segment| &segment.blocks).filter(|block| block.state.is_active());
        let largest = blocks().map(|block| block.size).max().unwrap_or(1);
        let mut coloring = Self { by, palette, scopes: HashMap::new(), largest, legend: Vec::new(), apart: true };
        let total = |state| segments.iter().map(|segment| segment.present(state)).fold(0, u64::saturating_add);
        let paused = segments.iter().map(MapSegment::paused).fold(0, u64::saturating_add);
        let state = |state, name: &str| (Some(coloring.by_state(state)), format!("{name}, {}", Bytes(total(state))));
        let aliased = state(BlockState::Aliased, ALIASED);
        let free = match is_aliased_known(segments) {
            true => state(BlockState::Inactive, "free"),
            false => state(BlockState::Inactive, "free or used elsewhere"),
        };
        let has_aliased = total(BlockState::Aliased) > 0;
        match by {
            ColorBy::State => {
                coloring.legend = vec![
                    state(BlockState::Allocated, "allocated"),
                    state(BlockState::PendingFree, "freed, in use by a stream"),
                    free,
                ];
            }
            ColorBy::Size => {
                let bound = |step: usize| Bytes(coloring.bound(step));
                let steps = palette.ramp.iter().enumerate();
                let steps = steps.map(|(step, color)| (Some(*color), format!("to {}", bound(step)))).collect();
                coloring.legend = steps;
                coloring.legend.push(free);
            }
            ColorBy::Scope => {
                let mut bytes = HashMap::<&str, u64>::new();
                for block in blocks() {
                    let bytes = bytes.entry(&block.scope).or_default();
                    *bytes = bytes.saturating_add(block.size);
                }
                let mut scopes: Vec<_> = bytes.into_iter().filter(|(scope, _)| !scope.is_empty()).collect();
                scopes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
                scopes.truncate(palette.kinds.len());
                for ((scope, bytes), color) in scopes.into_iter().zip(palette.kinds) {
                    coloring.scopes.insert(scope, color);
                    coloring.legend.push((Some(color), format!("{}, {}", middle(scope), Bytes(bytes))));
                }
                coloring.legend.push((Some(palette.rest), "others".to_owned()));
                coloring.legend.push(free);
            }
        }
        if has_aliased {
            coloring.legend.push(aliased);
        }
        if paused > 0 {
            coloring.legend.push((Some(palette.paused), format!("{PAUSED}, {}", Bytes(paused))));
        }
        coloring
    }

    fn color(&self, block: &MapBlock) -> RGBColor {
        if !block.state.is_active() {
            return self.by_state(block.state);
        }
        match self.by {
            ColorBy::State => self.by_state(block.state),
            ColorBy::Size => {
                let step = (0..self.palette.ramp.len()).find(|step| block.size <= self.bound(*step));
                self.palette.ramp[step.unwrap_or(self.palette.ramp.len() - 1)]
            }
            ColorBy::Scope => self.scopes.get(&*block.scope).copied().unwrap_or(self.palette.rest),
        }
    }

    /// Returns the largest size of a step. Each is eight times the previous one.
    fn bound(&self, step: usize) -> u64 {
        let largest = self.largest.checked_next_power_of_two().unwrap_or(u64::MAX);
        (largest >> (3 * (self.palette.ramp.len() - 1 - step))).max(1)
    }

    fn by_state(&self, state: BlockState) -> RGBColor {
        match state {
            BlockState::Allocated => self.palette.series(Series::Allocated),
            BlockState::PendingFree => self.palette.series(Series::Active),
            BlockState::Inactive => self.palette.free,
            BlockState::Aliased => self.palette.aliased,
        }
    }
}

/// Returns whether all memory that aliases use can be distinguished from free memory. In a history this is known only
/// at the end.
fn is_aliased_known(segments: &[MapSegment]) -> bool {
    let has_aliased = segments.iter().any(|segment| segment.bytes(BlockState::Aliased) > 0);
    has_aliased || !segments.iter().any(|segment| segment.is_alias)
}

/// Shortens a name for the legend.
fn middle(name: &str) -> String {
    const LONGEST: usize = 32;
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= LONGEST {
        return name.to_owned();
    }
    let (start, end) = (&chars[..LONGEST / 2], &chars[chars.len() - LONGEST / 2 + 1..]);
    start.iter().chain(&['…']).chain(end).collect()
}
