use std::sync::OnceLock;

use plotters::style::{FontStyle, register_font};

use super::PlotError;

/// The fonts for an SVG. Plotters treats this as a single name, the name of the font below.
pub(super) const FAMILY: &str = "DejaVu Sans, Verdana, Noto Sans, sans-serif";

/// DejaVu Sans: Basic Latin and a few signs. It is wider than most fonts, so text that fits with it also fits with
/// others.
const SANS: &[u8] = include_bytes!("sans.ttf");

pub(super) fn register() -> Result<(), PlotError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    match REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, SANS).is_ok()) {
        true => Ok(()),
        false => Err(PlotError::Drawing("the font that is compiled in is damaged".to_owned())),
    }
}
