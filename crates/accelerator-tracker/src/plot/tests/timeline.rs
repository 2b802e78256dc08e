//! Curves of memory, and the lines of their markers.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_marker_has_its_line_and_steps_are_as_long_as_they_are() {
    let mut profile = profile(840, 0);
    let names = ["fw_start", "fw_bw_boundary", "optimizer"];
    profile.markers = (0..120).map(|at| Marker { name: names[at % 3].into(), call: 7 * at }).collect();
    let svg = Picture::Memory(Along::Calls).to_svg(&profile).unwrap();
    let palette = Palette::of(Theme::Light);
    let across: Vec<i32> = [palette.marker, palette.warning]
        .into_iter()
        .flat_map(|color| lines(&svg, color))
        .map(|line| line[0].0)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(across.len(), 120);
    let apart: Vec<i32> = across.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.iter().max().unwrap() - apart.iter().min().unwrap() <= 1, "{apart:?}");
}

#[test]
fn the_last_call_is_as_wide_as_the_others() {
    let mut profile = profile(4, 0);
    profile.markers = vec![Marker { name: "the end".into(), call: 4 }];
    for (at, sample) in profile.samples.iter_mut().enumerate() {
        sample.memory.allocated = (1 + at as u64) << 30;
    }
    let svg = Picture::Series(Series::Allocated, Along::Calls).to_svg(&profile).unwrap();
    let palette = Palette::of(Theme::Light);
    let [curve] = &lines(&svg, palette.series(Series::Allocated))[..] else { panic!("{svg}") };
    let widths: Vec<i32> = curve.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|width| *width > 0).collect();
    assert_eq!(widths.len(), 4, "{curve:?}");
    assert!(widths.iter().all(|width| width.abs_diff(widths[0]) <= 1), "{widths:?}");
    let end = lines(&svg, palette.marker)[0][0].0;
    assert_eq!(curve.last().map(|point| point.0), Some(end), "a marker after all calls is at their end");

    let svg = Picture::Series(Series::Allocated, Along::Time).to_svg(&profile).unwrap();
    let curve = lines(&svg, palette.series(Series::Allocated)).remove(0);
    let [.., before, last] = curve[..] else { panic!("{svg}") };
    assert!(before.1 == last.1 && before.0 < last.0, "{curve:?}");
}

#[test]
fn a_run_without_operators_says_so() {
    register().unwrap();
    for (picture, times) in
        [(Picture::Memory(Along::Calls), 1), (Picture::Memory(Along::Time), 1), (Picture::Traces, 4)]
    {
        let svg = picture.to_svg(&profile(0, 0)).unwrap();
        let said = texts(&svg).iter().filter(|text| text.text.trim() == "no operators were recorded").count();
        assert_eq!(said, times, "{picture:?}");
    }
}

#[test]
fn lines_that_would_be_an_area_are_left_out_with_a_note() {
    register().unwrap();
    let mut profile = profile(10_000, 0);
    profile.markers = (0..5_000).map(|at| Marker { name: "step".into(), call: 2 * at }).collect();
    let svg = Picture::Memory(Along::Calls).to_svg(&profile).unwrap();
    assert!(lines(&svg, Palette::of(Theme::Light).marker).is_empty());
    let texts = texts(&svg);
    assert!(texts.iter().any(|text| text.text.trim() == "5,000 markers, too close to be shown"), "{texts:?}");
}
