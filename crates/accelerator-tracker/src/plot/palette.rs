use plotters::style::RGBColor;

use super::Theme;
use crate::picture::Series;

/// The colours of Okabe and Ito, which people with any kind of colour vision can distinguish. They are darkened or
/// lightened to a contrast of at least 3:1 against the background.
pub(super) struct Palette {
    pub(super) background: RGBColor,
    pub(super) text: RGBColor,
    pub(super) quiet: RGBColor,
    pub(super) grid: RGBColor,
    allocated: RGBColor,
    active: RGBColor,
    reserved: RGBColor,
    pub(super) warning: RGBColor,
    pub(super) marker: RGBColor,
    /// Free memory.
    pub(super) free: RGBColor,
    /// Memory that is in use at another address.
    pub(super) aliased: RGBColor,
    /// Memory that is back with the driver while its pool is paused.
    pub(super) paused: RGBColor,
    /// The steps from few to many.
    pub(super) ramp: [RGBColor; 6],
    /// Categories without an order.
    pub(super) kinds: [RGBColor; 7],
    /// All other categories.
    pub(super) rest: RGBColor,
}

const fn rgb(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

// No two colours of a palette are equal, since each colour of an SVG is replaced by its dark counterpart.
const LIGHT: Palette = Palette {
    background: rgb(0xffffff),
    text: rgb(0x1f2328),
    quiet: rgb(0x59636e),
    grid: rgb(0xe3e7eb),
    allocated: rgb(0x0072b2),
    active: rgb(0xc76a00),
    reserved: rgb(0x00805c),
    warning: rgb(0xc8102e),
    marker: rgb(0x7d8590),
    free: rgb(0xd3d9df),
    aliased: rgb(0x8fb8d4),
    paused: rgb(0xd9c4e4),
    ramp: [rgb(0xcfe3f3), rgb(0x9fc8e6), rgb(0x63a6d4), rgb(0x2f82bd), rgb(0x0f5c97), rgb(0x073763)],
    kinds: [rgb(0x0173b3), rgb(0xd98200), rgb(0x01815d), rgb(0xb8508c), rgb(0x3f9fd4), rgb(0xb84700), rgb(0x8a7d00)],
    rest: rgb(0x9aa4ae),
};

const DARK: Palette = Palette {
    background: rgb(0x0d1117),
    text: rgb(0xe6edf3),
    quiet: rgb(0x9aa4ae),
    grid: rgb(0x262c34),
    allocated: rgb(0x56b4e9),
    active: rgb(0xf0a030),
    reserved: rgb(0x35c79b),
    warning: rgb(0xff6b6b),
    marker: rgb(0x7c8490),
    free: rgb(0x3a424c),
    aliased: rgb(0x35617d),
    paused: rgb(0x574263),
    ramp: [rgb(0x12314b), rgb(0x174f7c), rgb(0x1a669c), rgb(0x459bd6), rgb(0x86c2ea), rgb(0xcfe8f9)],
    kinds: [rgb(0x57b5ea), rgb(0xf1a131), rgb(0x36c89c), rgb(0xe08cbc), rgb(0x2b7bb0), rgb(0xe0622a), rgb(0xe8dc50)],
    rest: rgb(0x6c7682),
};

impl Palette {
    pub(super) fn of(theme: Theme) -> &'static Self {
        match theme {
            Theme::Light => &LIGHT,
            Theme::Dark => &DARK,
        }
    }

    pub(super) fn series(&self, series: Series) -> RGBColor {
        match series {
            Series::Allocated => self.allocated,
            Series::Active => self.active,
            Series::Reserved => self.reserved,
        }
    }

    /// Returns all colours, in the same order in each palette.
    pub(super) fn colors(&self) -> Vec<RGBColor> {
        let Self {
            background,
            text,
            quiet,
            grid,
            allocated,
            active,
            reserved,
            warning,
            marker,
            free,
            aliased,
            paused,
            ramp,
            kinds,
            rest,
        } = self;
        let lines = [background, text, quiet, grid, allocated, active, reserved, warning, marker];
        let states = [free, aliased, paused, rest];
        lines.into_iter().chain(states).chain(ramp).chain(kinds).copied().collect()
    }
}
