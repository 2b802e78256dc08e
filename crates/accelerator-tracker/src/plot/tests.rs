#![allow(clippy::unwrap_used, reason = "a test stops at anything unexpected")]

mod paused;
mod timeline;

use std::io::Read;
use std::sync::Arc;

use accelerator_core::MemPoolId;
use plotters::prelude::IntoFont;
use plotters::style::RGBColor;

use super::font::{FAMILY, register};
use super::palette::Palette;
use super::*;
use crate::picture::{MapBlock, MapSegment, Marker, Moment, Sample, Span};
use crate::snapshot::{BlockState, PoolKind};
use crate::tracker::MemoryUse;

const NAMES: [&str; 4] = [
    "transformer.h.11.mlp.c_proj.forward.aten::addmm_117",
    "<script>alert('x')</script>&\"\u{202e}\0",
    "数据并行训练步骤的梯度聚合运算符名称非常长",
    "copy",
];

/// Returns a profile of `count` operators whose memory goes up and down, with data for every picture.
fn profile(count: usize, markers: usize) -> Profile {
    let value = |at: usize| ((at * 7_919) % 1_009) as u64 * 7_654_321;
    let name = |at: usize| Arc::<str>::from(format!("{}{}", NAMES[at % 4], at % 97));
    let sample = |at| Sample {
        name: name(at),
        time_us: 1 + 37 * at as i64,
        memory: MemoryUse { allocated: value(at), active: value(at) + 4_096, reserved: 8 << 30 },
    };
    let block = |size: u64| MapBlock {
        size,
        state: [BlockState::Allocated, BlockState::Inactive, BlockState::PendingFree][size as usize % 3],
        scope: name(size as usize),
    };
    let segment = |number: usize| MapSegment {
        pool: if number.is_multiple_of(2) { PoolKind::Large } else { PoolKind::Small },
        mem_pool: MemPoolId::DEFAULT,
        stream: number as u64 % 5,
        address: number as u64,
        is_alias: false,
        is_paused: false,
        blocks: (1..1 + count as u64 % 300).map(|size| block(size * (1 + number as u64))).collect(),
    };
    let span =
        |at: usize| Span { bytes: value(at), start: Some(at), end: (!at.is_multiple_of(7)).then_some(at + at % 613) };
    Profile {
        title: NAMES[1].repeat(9),
        capacity: Some(12 << 30),
        samples: (0..count).map(sample).collect(),
        markers: (0..markers)
            .map(|at| Marker {
                name: if at == 1 { "fw_bw_boundary".into() } else { name(at) },
                call: at * count / markers.max(1),
            })
            .collect(),
        moments: vec![Moment {
            name: NAMES[0].to_owned(),
            call: 0,
            segments: (0..count.min(40)).map(segment).collect(),
        }],
        spans: (0..count).map(span).collect(),
        ..Profile::default()
    }
}

fn pictures(profile: &Profile) -> Vec<(String, Picture, String)> {
    let mut all = Picture::all(profile);
    all.extend(Series::ALL.map(|series| (series.name(), Picture::Series(series, Along::Time))));
    all.into_iter().map(|(name, picture)| (name.to_owned(), picture, picture.to_svg(profile).unwrap())).collect()
}

#[derive(Debug)]
struct Text {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Returns the texts of an SVG, with their boxes in the font that was used to compute the layout.
fn texts(svg: &str) -> Vec<Text> {
    let text = |element: &str| {
        let (tag, text) = element.split_once('>').unwrap();
        let text = text.split_once("\n</text>").unwrap().0;
        let text = text
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&apos;", "'")
            .replace("&amp;", "&");
        let attribute = |name: &str| tag.split_once(&format!(" {name}=\"")).unwrap().1.split_once('"').unwrap().0;
        let number = |name| attribute(name).parse::<f64>().unwrap();
        let (x, y, em) = (number("x"), number("y"), number("font-size"));
        // In plotters, the size of a font is its ascent plus descent, not an em.
        let (width, _) = (FAMILY, em * 1.164).into_font().box_size(&text).unwrap();
        let left = match attribute("text-anchor") {
            "start" => x,
            "middle" => x - f64::from(width) / 2.0,
            _ => x - f64::from(width),
        };
        Text { text, left, right: left + f64::from(width), top: y - 0.5 * em, bottom: y + 0.5 * em }
    };
    svg.split("<text ").skip(1).map(|element| text(&format!(" {element}"))).collect()
}

#[test]
fn texts_neither_overlap_nor_leave_the_picture() {
    register().unwrap();
    for (count, markers) in [(0, 0), (1, 1), (10, 3), (300, 9), (5_000, 40), (100_000, 5_000)] {
        let profile = profile(count, markers);
        for (name, picture, svg) in pictures(&profile) {
            let (width, height) = picture.size(&profile);
            let texts = texts(&svg);
            assert!(!texts.is_empty());
            for (number, text) in texts.iter().enumerate() {
                let inside = text.left >= 0.0
                    && text.right <= f64::from(width)
                    && text.top >= 0.0
                    && text.bottom <= f64::from(height);
                assert!(inside, "{name} of {count}: {}, {text:?}", text.text);
                let overlaps = |other: &&Text| {
                    text.left < other.right
                        && other.left < text.right
                        && text.top < other.bottom
                        && other.top < text.bottom
                };
                let other = texts[number + 1..].iter().find(overlaps);
                assert!(other.is_none(), "{name} of {count}: {text:?} {other:?}");
            }
        }
    }
}

/// Returns the points of the lines and curves of this colour, in the order in which they are drawn.
fn lines(svg: &str, RGBColor(red, green, blue): RGBColor) -> Vec<Vec<(i32, i32)>> {
    let stroke = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\"");
    let drawn = svg.lines().filter(|line| line.starts_with("<polyline") && line.contains(&stroke));
    let number = |text: &str| text.parse::<i32>().unwrap();
    let point = |point: &str| point.split_once(',').map(|(x, y)| (number(x), number(y))).unwrap();
    let points = |line: &str| line.split_once("points=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    drawn.map(|line| points(line).split_whitespace().map(point).collect()).collect()
}

/// Memory that aliases use has a separate colour in its segment. The blocks of aliases have a separate group, and
/// nothing counts twice.
#[test]
fn aliases_are_shown_apart() {
    const MIB: u64 = 1 << 20;
    let block = |state| MapBlock { size: 3 * MIB, state, scope: "op".into() };
    let segment = |is_alias, blocks: &[BlockState]| MapSegment {
        pool: PoolKind::Large,
        mem_pool: MemPoolId::DEFAULT,
        stream: 0,
        address: 512,
        is_alias,
        is_paused: false,
        blocks: blocks.iter().map(|state| block(*state)).collect(),
    };
    use BlockState::{Aliased, Allocated, Inactive};
    let drawn = |segments: [MapSegment; 2], by| {
        let moment = Moment { name: "the end".to_owned(), call: 0, segments: segments.into() };
        let profile = Profile { moments: vec![moment], ..Profile::default() };
        let picture = Picture::Segments(0, by);
        let svg = picture.to_svg(&profile).unwrap();
        let texts: Vec<_> = texts(&svg).iter().map(|text| text.text.trim().to_owned()).collect();
        let RGBColor(red, green, blue) = Palette::of(Theme::Light).aliased;
        let marked = svg.matches(&format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"")).count();
        (texts.join("|"), marked)
    };
    register().unwrap();
    for (by, entry) in [(ColorBy::State, "|allocated, 6.00 MiB|"), (ColorBy::Scope, "|op, 6.00 MiB|")] {
        let aliased = segment(false, &[Allocated, Aliased, Inactive]);
        let (texts, marked) = drawn([segment(true, &[Allocated]), aliased], by);
        assert!(texts.contains(entry), "{texts}");
        assert!(texts.contains("|used by an alias, 3.00 MiB|"), "{texts}");
        assert!(texts.contains("|free, 3.00 MiB|"), "{texts}");
        assert!(texts.contains("Large pool, stream 0: 9.00 MiB in 1 segment, 3.00 MiB allocated"), "{texts}");
        let private = MapSegment { mem_pool: MemPoolId::new(0, 7), ..segment(false, &[Allocated]) };
        let (apart, _) = drawn([segment(false, &[Allocated]), private], by);
        assert!(apart.contains("Large pool of private pool 0_7, stream 0: 3.00 MiB in 1 segment"), "{apart}");
        assert!(texts.contains("Aliases: 3.00 MiB in 1 block, which is memory of the pools"), "{texts}");
        assert_eq!(marked, 3, "the block, its entry in the legend, the rule for dark systems");
    }
    // This is a moment in the middle of a history.
    let aliased = segment(false, &[Allocated, Inactive]);
    let (texts, _) = drawn([segment(true, &[Allocated]), aliased], ColorBy::State);
    assert!(texts.contains("|free or used elsewhere, 3.00 MiB|"), "{texts}");
    assert!(!texts.contains("|used at a second"), "{texts}");
}

#[test]
fn sizes_stay_bounded_and_peaks_stay() {
    let mut profile = profile(100_000, 5_000);
    // A single sample reaches the reserved memory, which is constant.
    profile.samples[77_777].memory.allocated = 8 << 30;
    for (name, _, svg) in pictures(&profile) {
        assert!(svg.len() < 400_000, "{name}: {}", svg.len());
    }
    let svg = Picture::Memory(Along::Calls).to_svg(&profile).unwrap();
    let palette = Palette::of(Theme::Light);
    let top = |series| {
        let longest = lines(&svg, palette.series(series)).into_iter().max_by_key(Vec::len).unwrap();
        longest.into_iter().map(|(_, y)| y).min()
    };
    assert_eq!(top(Series::Allocated), top(Series::Reserved));
}

#[test]
fn names_are_text_and_nothing_else() {
    for (name, _, svg) in pictures(&profile(300, 9)) {
        assert!(!svg.contains("<script") && !svg.contains(|c| c < ' ' && c != '\n'), "{name}");
        assert!(!svg.contains('\u{202e}'), "{name}");
        // Each element name is one that the code writes.
        let known = ["svg", "title", "style", "text", "rect", "line", "polyline", "polygon", "circle"];
        for tag in svg.split('<').skip(1) {
            let tag = tag.trim_start_matches('/').split([' ', '>', '\n', '/']).next().unwrap();
            assert!(known.contains(&tag), "{name}: {tag}");
        }
    }
    let svg = Picture::Largest(20).to_svg(&profile(300, 0)).unwrap();
    assert!(svg.contains("&lt;script&gt;"), "shown as text");
}

#[test]
fn every_color_has_its_dark_counterpart() {
    for (name, _, svg) in pictures(&profile(300, 9)) {
        let (style, drawing) = svg.split_once("</style>").unwrap();
        for color in drawing.split('"').filter(|part| part.starts_with('#')) {
            assert!(style.contains(&format!("[fill=\"{color}\"]")), "{name}: {color}");
        }
    }
    for theme in [Theme::Light, Theme::Dark] {
        let mut colors: Vec<_> = Palette::of(theme).colors().iter().map(|RGBColor(r, g, b)| (*r, *g, *b)).collect();
        let count = colors.len();
        colors.sort_unstable();
        colors.dedup();
        assert_eq!(colors.len(), count, "{theme:?}");
    }
}

/// Returns the contrast as defined by the Web Content Accessibility Guidelines.
fn contrast(a: RGBColor, b: RGBColor) -> f64 {
    let luminance = |RGBColor(red, green, blue): RGBColor| {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_and_curves_stand_out() {
    for theme in [Theme::Light, Theme::Dark] {
        let palette = Palette::of(theme);
        for text in [palette.text, palette.quiet, palette.warning] {
            assert!(contrast(text, palette.background) >= 4.5, "{theme:?} {text:?}");
        }
        for curve in Series::ALL.map(|series| palette.series(series)).into_iter().chain([palette.marker]) {
            assert!(contrast(curve, palette.background) >= 3.0, "{theme:?} {curve:?}");
        }
        for (step, color) in palette.ramp.into_iter().enumerate() {
            let text = if step < 3 { palette.text } else { palette.background };
            assert!(contrast(text, color) >= 3.9, "{theme:?} {step}: {}", contrast(text, color));
        }
    }
}

/// The colours of categories may differ by one, since no two colours of a palette may be equal.
#[test]
fn the_page_has_the_colors_of_the_pictures() {
    let (light, dark) = include_str!("../report/page.css").split_once("@media").unwrap();
    for (theme, css) in [(Theme::Light, light), (Theme::Dark, dark)] {
        let of_page = |name: &str| {
            let hex = css.split_once(&format!("--{name}: #")).unwrap().1.get(..6).unwrap();
            let [_, r, g, b] = u32::from_str_radix(hex, 16).unwrap().to_be_bytes();
            RGBColor(r, g, b)
        };
        let palette = Palette::of(theme);
        let series = Series::ALL.map(|series| (series.name(), palette.series(series)));
        let named = [
            ("background", palette.background),
            ("text", palette.text),
            ("quiet", palette.quiet),
            ("grid", palette.grid),
            ("warning", palette.warning),
            ("free", palette.free),
            ("aliased", palette.aliased),
            ("marker", palette.marker),
            ("free", palette.free),
            ("rest", palette.rest),
        ];
        for (name, color) in named.into_iter().chain(series) {
            assert_eq!(of_page(name), color, "{theme:?} {name}");
        }
        for (level, color) in palette.ramp.into_iter().enumerate() {
            assert_eq!(of_page(&format!("level{level}")), color, "{theme:?} level {level}");
        }
        for (kind, RGBColor(r, g, b)) in palette.kinds.into_iter().enumerate() {
            let shown = of_page(&format!("kind{kind}"));
            let apart = [(r, shown.0), (g, shown.1), (b, shown.2)].map(|(a, b)| a.abs_diff(b));
            assert!(apart.iter().all(|apart| *apart <= 1), "{theme:?} kind {kind}");
        }
    }
}

/// Returns the rows of pixels of a PNG, with its filters undone.
fn pixels(file: &[u8]) -> (usize, Vec<Vec<u8>>) {
    assert!(file.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"));
    assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
    let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (width, height) = (number(16), number(20));
    let (length, data) = (number(33), &file[41..]);
    assert_eq!(&file[37..41], b"IDAT");
    let mut raw = Vec::new();
    flate2::read::ZlibDecoder::new(&data[..length]).read_to_end(&mut raw).unwrap();
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in raw.chunks(1 + 3 * width) {
        assert_eq!(line[0], 2);
        let above = lines.last().cloned().unwrap_or(vec![0; 3 * width]);
        lines.push(line[1..].iter().zip(above).map(|(byte, above)| byte.wrapping_add(above)).collect());
    }
    assert_eq!(lines.len(), height);
    (width, lines)
}

#[test]
fn a_png_shows_the_curves_in_the_colors_of_its_theme() {
    let profile = profile(300, 3);
    for theme in [Theme::Light, Theme::Dark] {
        let (width, lines) = pixels(&Picture::Memory(Along::Calls).to_png(&profile, theme).unwrap());
        assert_eq!((width, lines.len()), (1920, 880));
        let palette = Palette::of(theme);
        let count = |RGBColor(red, green, blue): RGBColor| {
            lines.iter().flat_map(|line| line.chunks(3)).filter(|pixel| **pixel == [red, green, blue]).count()
        };
        assert!(count(palette.background) > 500_000);
        // Reserved memory is a horizontal line, four pixels high.
        let reserved = count(palette.series(Series::Reserved));
        assert!(reserved > 4 * 1_500, "{reserved}");
        assert!(count(palette.series(Series::Allocated)) > 10_000 && count(palette.warning) > 500);
    }
}

#[test]
fn a_file_is_named_after_its_format() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str| Picture::Sizes.save(&profile(10, 0), &folder.path().join(name), Theme::Light);
    save("a.SVG").unwrap();
    save("a.png").unwrap();
    let error = save("a.jpeg").unwrap_err().to_string();
    assert!(error.ends_with("a.jpeg: the file name must end in .svg or .png"), "{error}");
    assert!(save("none/a.png").unwrap_err().to_string().contains("cannot be written"));
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["a.SVG", "a.png"]);
}
