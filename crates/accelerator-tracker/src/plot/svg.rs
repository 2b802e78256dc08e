use std::fmt::Write;

use accelerator_core::printable;
use plotters::style::RGBColor;

use super::Theme;
use super::palette::Palette;

/// Adds a title to a picture that was drawn in light colours, and dark colours for systems with a dark theme.
pub(super) fn finish(svg: &str, title: &str) -> String {
    let (tag, rest) = svg.split_once('>').unwrap_or((svg, ""));
    let title = printable(title).replace('&', "&amp;").replace('<', "&lt;");
    let colors = Palette::of(Theme::Light).colors().into_iter().zip(Palette::of(Theme::Dark).colors());
    let mut dark = String::new();
    for (from, to) in colors {
        let (from, to) = (hex(from), hex(to));
        // A CSS rule has priority over the attribute that it selects.
        let _ = write!(dark, "[fill=\"{from}\"]{{fill:{to}}}[stroke=\"{from}\"]{{stroke:{to}}}");
    }
    format!(
        "{tag} role=\"img\">\n<title>{title}</title>\n<style>text{{white-space:pre}}\
         @media(prefers-color-scheme:dark){{{dark}}}</style>{rest}"
    )
}

/// Formats a colour as plotters writes it.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
