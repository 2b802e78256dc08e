#![allow(clippy::unwrap_used, reason = "a test stops at anything unexpected")]

use std::sync::Arc;

use accelerator_core::MemPoolId;
use serde_json::Value;

use super::*;
use crate::picture::{MapBlock, MapSegment, Marker, Moment, Sample, Span};
use crate::snapshot::{BlockState, PoolKind};
use crate::tracker::MemoryUse;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\u{202e}<!--";

fn profile(count: usize) -> Profile {
    let value = |at: usize| ((at * 7_919) % 1_009) as u64 * 7_654_321;
    let sample = |at: usize| Sample {
        name: format!("{HOSTILE}{}", at % 97).into(),
        time_us: 5 * at as i64,
        memory: MemoryUse { allocated: value(at), active: value(at) + 512, reserved: 9 << 30 },
    };
    let block = |at: usize| MapBlock {
        size: 512 * (1 + at as u64 % 9),
        state: if at.is_multiple_of(2) { BlockState::Allocated } else { BlockState::Inactive },
        scope: HOSTILE.into(),
    };
    let segment = |number: usize| MapSegment {
        pool: PoolKind::Large,
        mem_pool: MemPoolId::DEFAULT,
        stream: 0,
        address: number as u64,
        is_alias: false,
        is_paused: false,
        blocks: (0..count / 50).map(block).collect(),
    };
    let moment = |call| Moment { name: HOSTILE.to_owned(), call, segments: (0..count.min(50)).map(segment).collect() };
    Profile {
        title: HOSTILE.to_owned(),
        facts: vec![(HOSTILE.to_owned(), HOSTILE.to_owned())],
        samples: (0..count).map(sample).collect(),
        markers: (0..count / 2).map(|call| Marker { name: HOSTILE.into(), call }).collect(),
        moments: (0..9).map(moment).collect(),
        spans: (0..count).map(|at| Span { bytes: value(at), start: Some(at), end: Some(2 * at) }).collect(),
        statistics: vec![(HOSTILE.to_owned(), -7)],
        ..Profile::default()
    }
}

fn data(page: &str) -> Value {
    let json = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(json).unwrap()
}

#[test]
fn names_are_text_and_nothing_else() {
    let page = html(&profile(200));
    // The only scripts are ours: the data and the program.
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains('\u{202e}'));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"), "shown as text");
    assert_eq!(data(&page)["names"][0], format!("{}0", HOSTILE.replace('\u{202e}', "\\u{202e}")));
}

#[test]
fn pools_have_their_names_and_paused_memory_is_not_free() {
    let mut profile = profile(100);
    let pool = MemPoolId::new(0, 7);
    profile.pool_names = [(pool, HOSTILE.into())].into();
    for (number, segment) in profile.moments.iter_mut().flat_map(|moment| moment.segments.iter_mut().enumerate()) {
        (segment.mem_pool, segment.is_paused) = (pool, number == 0);
        segment.blocks = vec![MapBlock { size: 4096, state: BlockState::Inactive, scope: Arc::default() }];
    }
    let page = html(&profile);
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains('\u{202e}'));
    let name = format!("{} (0_7)", HOSTILE.replace('\u{202e}', "\\u{202e}"));
    let data = data(&page);
    let segments = data["moments"][0]["segments"].as_array().unwrap();
    let states: Vec<_> = segments.iter().map(|segment| segment[3][0][1].as_u64().unwrap()).collect();
    assert_eq!(states.iter().filter(|state| **state == 4).count(), 1, "{states:?}");
    assert!(segments.iter().all(|segment| segment[4] == name), "{}", segments[0]);
    assert!(page.contains("large, private &lt;/script&gt;"), "in the table");
    let cells = |free, paused| {
        let cell = |text| format!("<td class=\"number\">{text}</td>");
        [cell("4.00 KiB"), cell("0 bytes"), cell("0 bytes"), cell(free), cell(paused), cell("1")].concat()
    };
    assert_eq!(page.matches(&cells("0 bytes", "4.00 KiB")).count(), 1);
    assert_eq!(page.matches(&cells("4.00 KiB", "0 bytes")).count(), segments.len() - 1);
}

#[test]
fn the_page_needs_nothing_else() {
    let page = html(&profile(200));
    for outside in ["http://", "https://", " src=", "@import", "url(", "<link", "<iframe"] {
        // XML namespaces look like addresses.
        let page = page.replace("http://www.w3.org/2000/svg", "").replace("img src=", "");
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_hundred_thousand_operators_make_a_page_of_bounded_size_with_the_same_peaks() {
    let mut profile = profile(100_000);
    profile.samples[54_321].memory.allocated = 8 << 30;
    let page = html(&profile);
    assert!(page.len() < 3 << 20, "{}", page.len());
    let data = data(&page);
    let numbers = |name: &str| {
        let values = data["sample"][name].as_array().unwrap();
        values.iter().map(|value| value.as_i64().unwrap()).collect::<Vec<_>>()
    };
    let (calls, allocated, added) = (numbers("call"), numbers("allocated"), numbers("added"));
    let at = calls.iter().position(|call| *call == 54_321).unwrap();
    assert_eq!(allocated[at], 8 << 30);
    assert_eq!(
        added[at],
        (8 << 30) - profile.samples[54_320].memory.allocated as i64,
        "against its neighbour, shown or not"
    );
    assert!(calls.is_sorted_by(|a, b| a < b) && calls[0] == 0 && *calls.last().unwrap() == 99_999);
    for series in Series::ALL {
        assert_eq!(numbers(series.name()).into_iter().max(), profile.peak(series).map(|(_, peak)| peak as i64));
    }
    // The map contains all bytes, whichever blocks were merged.
    for (moment, shown) in profile.moments.iter().zip(data["moments"].as_array().unwrap()) {
        let blocks = shown["segments"].as_array().unwrap().iter().flat_map(|segment| segment[3].as_array().unwrap());
        let sizes: Vec<_> = blocks.map(|block| block[0].as_u64().unwrap()).collect();
        assert!(sizes.len() <= 6_000);
        assert_eq!(sizes.iter().sum::<u64>(), moment.segments.iter().map(MapSegment::size).sum::<u64>());
    }
}

#[test]
fn the_page_has_every_marker_that_can_be_distinguished() {
    let mut profile = profile(4_500);
    profile.markers = (0..450).map(|at| Marker { name: "step".into(), call: 10 * at }).collect();
    assert_eq!(data(&html(&profile))["markers"].as_array().unwrap().len(), 450);
    profile.markers = (0..4_500).map(|call| Marker { name: "step".into(), call }).collect();
    let data = data(&html(&profile));
    let shown = data["markers"].as_array().unwrap().len();
    assert!((500..1_500).contains(&shown), "{shown}");
    assert_eq!(data["marker_count"], 4_500);
}

#[test]
fn few_operators_and_none_make_a_page() {
    for count in [0, 1, 10] {
        let page = html(&profile(count));
        assert_eq!(data(&page)["sample"]["call"].as_array().unwrap().len(), count);
        assert!(page.ends_with("</html>\n"));
    }
    let page = html(&Profile::default());
    assert!(page.contains("No operator added any memory.") && !page.contains("id=\"map\""));
}

#[test]
fn tables_say_what_the_pictures_show() {
    let mut profile = profile(0);
    let sample = |name: &str, allocated| Sample {
        name: name.into(),
        time_us: 0,
        memory: MemoryUse { allocated, active: allocated, reserved: 20 << 20 },
    };
    profile.allocated_before = Some(0);
    profile.samples = vec![sample("a.mm_0", 3 << 20), sample("a.add_0", 15 << 20), sample("free", 1 << 20)];
    profile.spans =
        vec![Span { bytes: 700, start: Some(0), end: Some(3) }, Span { bytes: 600, start: Some(1), end: None }];
    let page = html(&profile);
    for part in [
        "<dt>peak allocated</dt><dd>15.00 MiB<small>at call 1</small>",
        "<dd>75.0 %<small>at their peaks</small>",
        "<th scope=\"row\">a.<wbr>add_<wbr>0</th>",
        "<span class=\"value\">12.00 MiB</span>",
        // Two allocations of at least 512 bytes. One lived for three operators.
        "<span class=\"value\">1.27 KiB</span>",
        "<th scope=\"row\">2–3</th><td class=\"level0\">1</td>",
        "<td class=\"number\">−7</td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
}
