//! Draws pictures of a [`Profile`], as SVG and PNG. No system fonts are needed, since a font is compiled in.

mod bars;
mod canvas;
mod font;
mod heat;
mod palette;
mod png;
mod rows;
mod scale;
mod segments;
mod svg;
mod timeline;

use std::path::Path;

use accelerator_core::printable;
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::drawing::IntoDrawingArea;
use plotters::prelude::DrawingBackend;

use self::canvas::Canvas;
use self::palette::Palette;
use crate::file::{FileError, write_whole};
use crate::picture::{Profile, Series};

/// Colours on a light or a dark background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Theme {
    #[default]
    Light,
    Dark,
}

/// The horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Along {
    /// The calls of operators.
    #[default]
    Calls,
    /// The time.
    Time,
}

/// The meaning of block colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorBy {
    /// Allocated, awaiting free, or free.
    #[default]
    State,
    /// The size of the block.
    Size,
    /// The operator, module or function that allocated the block.
    Scope,
}

/// A picture that can be made from a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Allocated, active and reserved memory in one figure.
    Memory(Along),
    /// A single series.
    Series(Series, Along),
    /// The four figures of PyTorch's `show_traces` in one picture: all series, then each on its own.
    Traces,
    /// The operators that allocated the most, at most this many.
    Largest(usize),
    /// The segments at the moment with this index.
    Segments(usize, ColorBy),
    /// The number of allocations of each size.
    Sizes,
    /// The lifetimes of allocations of each size.
    Lifetimes,
}

/// Why there is no picture.
#[derive(thiserror::Error)]
pub enum PlotError {
    /// Drawing failed.
    #[error("the picture cannot be drawn: {0}")]
    Drawing(String),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file name does not specify a known format.
    #[error("{0}: the file name must end in .svg or .png")]
    Format(String),
}

accelerator_core::debug_as_display!(PlotError);

/// Pixels of a PNG for each unit of a picture. Two are sharp on high-density screens.
const PNG_SCALE: u32 = 2;

impl Picture {
    /// Returns all pictures for which this profile has data, with short names for their files.
    pub fn all(profile: &Profile) -> Vec<(&'static str, Self)> {
        let mut all = vec![("memory", Self::Memory(Along::Calls)), ("traces", Self::Traces)];
        if profile.has_times() {
            all.push(("memory_over_time", Self::Memory(Along::Time)));
        }
        all.push(("largest", Self::Largest(20)));
        if !profile.moments.is_empty() {
            let moment = profile.moment_of_the_peak();
            all.push(("segments_by_state", Self::Segments(moment, ColorBy::State)));
            all.push(("segments_by_size", Self::Segments(moment, ColorBy::Size)));
            all.push(("segments_by_scope", Self::Segments(moment, ColorBy::Scope)));
        }
        if !profile.spans.is_empty() {
            all.extend([("sizes", Self::Sizes), ("lifetimes", Self::Lifetimes)]);
        }
        all
    }

    /// Draws the picture as SVG, which follows the light or dark theme of the reader's system.
    ///
    /// # Errors
    /// [`PlotError::Drawing`].
    pub fn to_svg(self, profile: &Profile) -> Result<String, PlotError> {
        let mut text = String::new();
        let size = self.size(profile);
        self.draw(profile, SVGBackend::with_string(&mut text, size), Theme::Light, 1)?;
        Ok(svg::finish(&text, &self.title(profile)))
    }

    /// Draws the picture as PNG.
    ///
    /// # Errors
    /// [`PlotError::Drawing`].
    pub fn to_png(self, profile: &Profile, theme: Theme) -> Result<Vec<u8>, PlotError> {
        let (width, height) = self.size(profile);
        let (width, height) = (width * PNG_SCALE, height * PNG_SCALE);
        let mut pixels = vec![0; 3 * width as usize * height as usize];
        let backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
        self.draw(profile, backend, theme, PNG_SCALE)?;
        png::encode(&pixels, width, height).map_err(|error| PlotError::Drawing(error.to_string()))
    }

    /// Writes the picture to a file, completely or not at all. The file name determines the format.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn save(self, profile: &Profile, path: &Path, theme: Theme) -> Result<(), PlotError> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let bytes = match extension.as_deref() {
            Some("svg") => self.to_svg(profile)?.into_bytes(),
            Some("png") => self.to_png(profile, theme)?,
            _ => return Err(PlotError::Format(printable(path))),
        };
        Ok(write_whole(path, |file| file.write_all(&bytes))?)
    }

    /// Returns the headline.
    pub fn title(self, profile: &Profile) -> String {
        let along = |along| match along {
            Along::Calls => "over operator calls",
            Along::Time => "over time",
        };
        match self {
            Self::Memory(x) => format!("Memory {}", along(x)),
            Self::Series(series, x) => format!("Memory {} {}", series.name(), along(x)),
            Self::Traces => "Memory over operator calls".to_owned(),
            Self::Largest(_) => "Operators that allocate most".to_owned(),
            Self::Segments(moment, _) => {
                let name = profile.moments.get(moment).map_or("no moment", |moment| &moment.name);
                format!("Segments: {name}")
            }
            Self::Sizes => "Sizes of allocations".to_owned(),
            Self::Lifetimes => "Lifetimes of allocations".to_owned(),
        }
    }

    fn size(self, profile: &Profile) -> (u32, u32) {
        match self {
            Self::Memory(_) | Self::Series(..) => (960, 440),
            Self::Traces => (1280, 860),
            Self::Largest(top) => (960, bars::height(profile, top)),
            Self::Segments(moment, by) => (960, segments::height(profile, moment, by)),
            Self::Sizes => (960, 400),
            Self::Lifetimes => (960, heat::height(profile)),
        }
    }

    fn draw<DB: DrawingBackend>(
        self,
        profile: &Profile,
        backend: DB,
        theme: Theme,
        scale: u32,
    ) -> Result<(), PlotError> {
        font::register()?;
        let area = backend.into_drawing_area();
        let canvas = Canvas::new(&area, scale, Palette::of(theme));
        canvas.background()?;
        let title = self.title(profile);
        match self {
            Self::Memory(along) => timeline::draw(&canvas, canvas.whole(), profile, &title, &Series::ALL, along)?,
            Self::Series(series, along) => {
                timeline::draw(&canvas, canvas.whole(), profile, &title, &[series], along)?;
            }
            Self::Traces => timeline::draw_four(&canvas, profile)?,
            Self::Largest(top) => bars::largest(&canvas, profile, &title, top)?,
            Self::Segments(moment, by) => segments::draw(&canvas, profile, &title, moment, by)?,
            Self::Sizes => bars::sizes(&canvas, profile, &title)?,
            Self::Lifetimes => heat::draw(&canvas, profile, &title)?,
        }
        area.present().map_err(PlotError::drawing)
    }
}

impl PlotError {
    fn drawing(error: impl std::fmt::Display) -> Self {
        Self::Drawing(error.to_string())
    }
}

#[cfg(test)]
mod tests;
