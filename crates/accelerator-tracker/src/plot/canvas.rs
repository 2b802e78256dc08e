use accelerator_core::printable;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::prelude::{Color, DrawingBackend, IntoFont};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBAColor, RGBColor, ShapeStyle, TextStyle};

use super::PlotError;
use super::font::FAMILY;
use super::palette::Palette;

/// A drawing in units of one screen pixel. A PNG has several pixels for each unit.
pub(super) struct Canvas<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    scale: i32,
    pub(super) palette: &'static Palette,
}

/// Part of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

impl Rect {
    pub(super) fn width(self) -> i32 {
        self.right - self.left
    }

    pub(super) fn height(self) -> i32 {
        self.bottom - self.top
    }
}

/// The horizontal position of text relative to the point at which it is drawn. Vertically it is centred on the point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The size of titles.
pub(super) const TITLE: i32 = 21;
pub(super) const TEXT: i32 = 15;

type Drawn = Result<(), PlotError>;

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    pub(super) fn new(area: &'a DrawingArea<DB, Shift>, scale: u32, palette: &'static Palette) -> Self {
        Self { area, scale: scale as i32, palette }
    }

    pub(super) fn whole(&self) -> Rect {
        let (width, height) = self.area.dim_in_pixel();
        Rect { left: 0, top: 0, right: width as i32 / self.scale, bottom: height as i32 / self.scale }
    }

    pub(super) fn background(&self) -> Drawn {
        self.area.fill(&self.palette.background).map_err(PlotError::drawing)
    }

    /// Draws horizontal and vertical lines.
    pub(super) fn line(&self, points: &[(i32, i32)], color: RGBColor, width: u32) -> Drawn {
        self.translucent_line(points, color, width, 1.0)
    }

    /// Like [`line`](Self::line), with an opacity from 0 to 1.
    pub(super) fn translucent_line(&self, points: &[(i32, i32)], color: RGBColor, width: u32, opacity: f64) -> Drawn {
        let color = color.mix(opacity);
        if self.is_bitmap() {
            return points.windows(2).try_for_each(|ends| self.bar(ends[0], ends[1], color, width as i32));
        }
        let style = ShapeStyle::from(&color).stroke_width(width);
        let points: Vec<_> = points.iter().map(|point| self.scaled(*point)).collect();
        self.area.draw(&PathElement::new(points, style)).map_err(PlotError::drawing)
    }

    /// Draws a part of a line as a rectangle, since the rasterizer of plotters loses corners of thick lines that turn
    /// within a few pixels.
    fn bar(&self, from: (i32, i32), to: (i32, i32), color: RGBAColor, width: i32) -> Drawn {
        let (from, to) = (self.scaled(from), self.scaled(to));
        let around = width * self.scale / 2;
        let start = (from.0.min(to.0) - around, from.1.min(to.1) - around);
        let end = (from.0.max(to.0) + around, from.1.max(to.1) + around);
        self.area.draw(&Rectangle::new([start, end], color.filled())).map_err(PlotError::drawing)
    }

    pub(super) fn area(&self, points: &[(i32, i32)], color: RGBColor, opacity: f64) -> Drawn {
        let points: Vec<_> = points.iter().map(|point| self.scaled(*point)).collect();
        self.area.draw(&Polygon::new(points, color.mix(opacity))).map_err(PlotError::drawing)
    }

    pub(super) fn rect(&self, rect: Rect, color: RGBColor) -> Drawn {
        let Rect { left, top, right, bottom } = rect;
        let (from, to) = (self.scaled((left, top)), self.scaled((right, bottom)));
        self.area.draw(&Rectangle::new([from, to], color.filled())).map_err(PlotError::drawing)
    }

    pub(super) fn text(&self, text: &str, at: (i32, i32), size: i32, anchor: Anchor, color: RGBColor) -> Drawn {
        let position = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let font = (FAMILY, size * self.scale).into_font();
        let style = TextStyle::from(font).color(&color).pos(Pos::new(position, VPos::Center));
        let (x, y) = self.scaled(at);
        // Visually, text is centred by its letters without descenders.
        let y = if self.is_bitmap() { y + size * self.scale / 6 } else { y };
        self.area.draw_text(&printable(text), &style, (x, y)).map_err(PlotError::drawing)
    }

    /// Returns the maximum width of a string. Characters that the font lacks are assumed to be as wide as high.
    pub(super) fn width(&self, text: &str, size: i32) -> Result<i32, PlotError> {
        let known: String = text.chars().filter(|c| is_known(*c)).collect();
        let others = text.chars().count() - known.chars().count();
        let style = TextStyle::from((FAMILY, size).into_font());
        let (width, _) = self.area.estimate_text_size(&known, &style).map_err(PlotError::drawing)?;
        Ok(width as i32 + 1 + others.min(10_000) as i32 * size)
    }

    /// Returns the text, with its middle replaced by `…` if it is wider than `width`.
    pub(super) fn shortened(&self, text: &str, size: i32, width: i32) -> Result<String, PlotError> {
        self.cut(text, size, width, 2)
    }

    /// Returns the text, with its end replaced by `…` if it is wider than `width`.
    pub(super) fn ended(&self, text: &str, size: i32, width: i32) -> Result<String, PlotError> {
        self.cut(text, size, width, usize::MAX)
    }

    /// Shortens text to `width`. One in `at_the_end` of the kept characters is from the end.
    fn cut(&self, text: &str, size: i32, width: i32, at_the_end: usize) -> Result<String, PlotError> {
        let chars: Vec<char> = printable(text).chars().collect();
        let kept = |count: usize| -> String {
            if count >= chars.len() {
                return chars.iter().collect();
            }
            let end = count / at_the_end;
            let (start, end) = (count - end, chars.len() - end);
            chars[..start].iter().chain(&['…']).chain(&chars[end..]).collect()
        };
        let (mut fits, mut too_many) = (0, chars.len().min(400) + 1);
        while too_many - fits > 1 {
            let middle = fits.midpoint(too_many);
            if self.width(&kept(middle), size)? <= width {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        Ok(kept(fits))
    }

    /// Draws a headline and its subject. Returns their height.
    pub(super) fn headline(&self, rect: Rect, title: &str, of: &str) -> Result<i32, PlotError> {
        let left = rect.left + 16;
        let title = self.shortened(title, TITLE, rect.width() - 32)?;
        self.text(&title, (left, rect.top + 24), TITLE, Anchor::Start, self.palette.text)?;
        if of.is_empty() {
            return Ok(42);
        }
        let of = self.shortened(of, TEXT, rect.width() - 32)?;
        self.text(&of, (left, rect.top + 47), TEXT, Anchor::Start, self.palette.quiet)?;
        Ok(62)
    }

    /// Draws a note in place of curves or bars if there is nothing to show.
    pub(super) fn nothing(&self, rect: Rect, text: &str) -> Drawn {
        self.text(text, (rect.left + 16, rect.top + 82), TEXT, Anchor::Start, self.palette.quiet)
    }

    /// Draws one or more rows of colours and their meanings. Returns their height.
    pub(super) fn legend(
        &self,
        rect: Rect,
        top: i32,
        entries: &[(Option<RGBColor>, String)],
    ) -> Result<i32, PlotError> {
        const ROW: i32 = 22;
        let (mut x, mut y) = (rect.left + 16, top + ROW / 2);
        for (color, text) in entries {
            let swatch = if color.is_some() { 20 } else { 0 };
            let text = self.shortened(text, TEXT, rect.width() - 32 - swatch)?;
            let width = swatch + self.width(&text, TEXT)?;
            if x > rect.left + 16 && x + width > rect.right - 16 {
                (x, y) = (rect.left + 16, y + ROW);
            }
            if let Some(color) = color {
                self.rect(Rect { left: x, top: y - 6, right: x + 13, bottom: y + 7 }, *color)?;
            }
            self.text(&text, (x + swatch, y), TEXT, Anchor::Start, self.palette.text)?;
            x += width + 18;
        }
        Ok(if entries.is_empty() { 0 } else { y + ROW / 2 - top })
    }

    fn is_bitmap(&self) -> bool {
        self.scale > 1
    }

    fn scaled(&self, (x, y): (i32, i32)) -> (i32, i32) {
        (x * self.scale, y * self.scale)
    }
}

/// Returns whether the font has this character.
fn is_known(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}' | 'µ' | '·' | '×' | '–' | '…' | '→' | '≤' | '≥')
}
