//! The four plots.

use accelerator_tracker::plot::PlotError;
use accelerator_tracker::tracker::{FORWARD_BACKWARD_BOUNDARY, Marker, TrackerStats};

use crate::rig::{run, trials};

trials! {
    the_four_figures_are_drawn
    a_picture_of_nothing_is_one
    a_file_name_of_an_unknown_format_is_refused
}

fn the_four_figures_are_drawn() {
    let mut stats = run(Some(1 << 20), &[("addmm_0", 2 << 20), ("relu_0", 3 << 20), ("mm_0", 1 << 20)]);
    stats.markers.push(Marker { name: FORWARD_BACKWARD_BOUNDARY.to_owned(), position: 2, time: None });
    let folder = tempfile::tempdir().unwrap();

    let svg = folder.path().join("traces.svg");
    stats.show_traces(&svg).unwrap();
    let text = std::fs::read_to_string(&svg).unwrap();
    let count = |word: &str| text.matches(word).count();
    assert_eq!(count("operator calls"), 4 + 1, "of each figure, and in the headline: {text}");
    assert_eq!(count(FORWARD_BACKWARD_BOUNDARY), 4, "{text}");

    let png = folder.path().join("traces.PNG");
    stats.show_traces(&png).unwrap();
    let bytes = std::fs::read(&png).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let pixels = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((pixels(16), pixels(20)), (2560, 1720), "two pixels for each of the picture's units");
}

fn a_picture_of_nothing_is_one() {
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("nothing.svg");
    TrackerStats::default().show_traces(&file).unwrap();
    assert!(std::fs::read_to_string(&file).unwrap().contains("</svg>"));
}

fn a_file_name_of_an_unknown_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["traces", "traces.pdf"] {
        let refused = run(None, &[]).show_traces(folder.path().join(name)).unwrap_err();
        assert!(matches!(refused, PlotError::Format(_)), "{refused}");
        assert!(refused.to_string().contains(".svg or .png"), "{refused}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
