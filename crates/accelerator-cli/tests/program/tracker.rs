//! `accel tracker`.

use std::path::{Path, PathBuf};

use accelerator_tracker::tracker::{MemoryUse, OperatorStats, TrackerStats};

use crate::accel::{file, run};

/// Returns the path of a file that PyTorch wrote, or of the text that PyTorch printed for it.
fn of_pytorch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pytorch").join(name)
}

#[test]
fn the_summary_of_pytorchs_file_is_what_pytorch_printed() {
    let pickle = of_pytorch("tiny_transformer.tracker.pickle");
    let pickle = pickle.to_str().unwrap();
    let (all, five) = (run(&["tracker", pickle]), run(&["tracker", pickle, "--top", "5"]));
    let printed = std::fs::read_to_string(of_pytorch("tiny_transformer.tracker_summary.txt")).unwrap();
    assert_eq!(format!("{}{}", all.out, five.out), printed);
    assert_eq!((all.status, five.status), (Some(0), Some(0)), "{} {}", all.error, five.error);
}

#[test]
fn the_summary_of_a_file_of_ours() {
    let path = file("run.jsonl", b"");
    let memory = MemoryUse { allocated: 3 << 20, active: 3 << 20, reserved: 20 << 20 };
    let operator = OperatorStats { name: "layers.3.forward.addmm_0".to_owned(), time: None, memory };
    let (start, operators) = (Some(MemoryUse::default()), vec![operator]);
    TrackerStats { start, operators, ..TrackerStats::default() }.save(&path).unwrap();
    let expected = "\
------------------------------------------------
The number of alloc retries are: 0
Top 7 ops that generates memory are:
layers.3.forward.addmm_0: 3.0MB
------------------------------------------------
";
    assert_eq!(run(&["tracker", path.to_str().unwrap(), "--top", "7"]).out, expected);
}

#[test]
fn a_file_that_is_not_from_a_tracker_is_refused() {
    run(&["tracker"]).fails(2, "Usage: accel tracker <FILE>");
    run(&["tracker", "file", "--top", "many"]).fails(2, "invalid value 'many' for '--top <TOP>'");
    run(&["tracker", "/no/such/file"]).fails(1, "accel: /no/such/file: cannot be opened: No such file");
    let path = file("page.html", b"<!DOCTYPE html>");
    let path = path.to_str().unwrap();
    run(&["tracker", path])
        .fails(1, &format!("accel: {path}: at byte 0: not a memory tracker's file: it seems to be a page"));
}
