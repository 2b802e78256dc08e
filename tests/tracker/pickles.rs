//! PyTorch's tracker files.

use std::fs;
use std::path::{Path, PathBuf};

use accelerator_core::MIB;
use accelerator_tracker::tracker::{Marker, TrackerStats};

use crate::bad_files::refused;
use crate::files::folder;
use crate::rig::{memory, run, trials};

trials! {
    a_file_of_pytorchs_is_read
    its_summary_is_what_pytorch_printed
    what_is_saved_for_pytorch_comes_back
    the_largest_amounts_were_saved_for_pytorch_but_not_read
    a_file_without_a_count_is_read
    a_file_of_any_protocol_is_read
    code_in_a_pickle_is_refused_and_not_run
    a_pickle_that_is_cut_off_anywhere
    pickles_of_other_things
}

fn of_pytorch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pytorch").join(name)
}

fn recorded() -> TrackerStats {
    TrackerStats::load(of_pytorch("tiny_transformer.tracker.pickle")).unwrap()
}

fn a_file_of_pytorchs_is_read() {
    // The number that Python's own pickle reads.
    let stats = recorded();
    assert_eq!(stats.operators.len(), 531);
    let fifth = &stats.operators[5];
    assert_eq!(fifth.name, "blocks.0.qkv.forward.addmm.default_0");
    let (allocated, reserved) = ((86.753_906_25 * 1_048_576.0) as u64, 130 * MIB);
    assert_eq!(fifth.memory, memory(allocated, allocated, reserved));
    let marker = |name: &str, position| Marker { name: name.to_owned(), position, time: None };
    assert_eq!(stats.markers, [marker("fw_start", 1), marker("fw_bw_boundary", 150)]);
    assert_eq!((stats.num_alloc_retries, stats.start, stats.device), (0, None, None));
}

fn its_summary_is_what_pytorch_printed() {
    let stats = recorded();
    let printed = fs::read_to_string(of_pytorch("tiny_transformer.tracker_summary.txt")).unwrap();
    assert_eq!(format!("{}\n{}\n", stats.summary(), stats.summary_top(5)), printed);
}

fn what_is_saved_for_pytorch_comes_back() {
    let folder = folder();
    let path = folder.path().join("run.pickle");
    let mut with_start = run(Some(3), &[("a_0", 513), ("Σ\n_0", 1 << 40), ("a_1", 0)]);
    with_start.operators[1].memory = memory(1 << 40, 1 << 41, 1 << 42);
    let at = |name: &str, position| Marker { name: name.to_owned(), position, time: None };
    with_start.markers = vec![at("fw_start", 0), at("fw_bw_boundary", 2), at("end", 3)];
    with_start.num_alloc_retries = 1 << 33;
    with_start.device = Some("host:0".into());
    with_start.total_memory = Some(u64::MAX);
    for stats in [with_start, recorded(), TrackerStats::default(), run(Some(3), &[])] {
        stats.save_pytorch(&path).unwrap();
        assert_eq!(TrackerStats::load(&path).unwrap(), stats);
    }
    // PyTorch's format has no fields for times, and keeps only the last of several markers with the same name.
    let mut stats = run(None, &[("a_0", 1), ("a_1", 2)]);
    stats.markers = vec![at("b", 0), at("a", 1), at("b", 2)];
    stats.save_pytorch(&path).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap().markers, [at("b", 2), at("a", 1)]);
}

/// Returns a handwritten pickle of protocol 0.
fn tracker_pickle(markers: &str, rest: &str) -> Vec<u8> {
    let entry = |amount: &str| format!("(dI0\n(S'a_0'\nF{amount}\ntsI1\n(S'b_0'\nF2.0\nts");
    let text = format!(
        "(dS'memories_allocated'\n{}sS'memories_active'\n{}sS'memories_reserved'\n{}sS'markers'\n{markers}s\
         S'num_alloc_retries'\nI3\ns{rest}.",
        entry("0.5"),
        entry("1.0"),
        entry("2.0")
    );
    text.into_bytes()
}

/// As fractions of a MiB, they were rounded up to 2^63 bytes, which are refused.
fn the_largest_amounts_were_saved_for_pytorch_but_not_read() {
    let folder = folder();
    let path = folder.path().join("run.pickle");
    for (amount, read) in
        [(i64::MAX as u64, i64::MAX as u64 - 1023), (1 << 62, 1 << 62), ((1 << 53) + 2, (1 << 53) + 2)]
    {
        run(Some(amount), &[("a_0", amount), ("b_0", 0)]).save_pytorch(&path).unwrap();
        assert_eq!(TrackerStats::load(&path).unwrap(), run(Some(read), &[("a_0", read), ("b_0", 0)]));
    }
}

fn a_file_without_a_count_is_read() {
    let folder = folder();
    let path = folder.path().join("run.pickle");
    fs::write(&path, tracker_pickle("(dS'now'\nI2\ns", "")).unwrap();
    let stats = TrackerStats::load(&path).unwrap();
    assert_eq!(stats.operators[0].memory, memory(MIB / 2, MIB, 2 * MIB));
    assert_eq!((stats.operators.len(), stats.markers[0].position, stats.num_alloc_retries), (2, 2, 3));
    // The count takes precedence over the number of entries.
    fs::write(&path, tracker_pickle("(d", "S'op_index'\nI1\ns")).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap().operators.len(), 1);
    for (markers, rest, message) in [
        ("(d", "S'op_index'\nI3\ns", "`memories_allocated` lacks operator 2"),
        ("(d", "S'op_index'\nI9223372036854775807\ns", "`memories_allocated` lacks operator 2"),
        ("(d", "S'op_index'\nI-1\ns", "`op_index` has an int where a count should be"),
        ("(dS'now'\nI3\ns", "", "the marker `now` comes after 3 operators, but there are only 2"),
        ("(l", "", "`markers` is a list or tuple, not a dict"),
    ] {
        let told = refused(&tracker_pickle(markers, rest));
        assert!(told.contains(message), "{told}, expected {message}");
    }
    for amount in ["nan", "-1.0", "inf", "8796093022208.0", "1e308"] {
        let text = String::from_utf8(tracker_pickle("(d", "")).unwrap().replacen("F2.0", &format!("F{amount}"), 1);
        let told = refused(text.as_bytes());
        assert!(told.contains("`memories_allocated` has no name and amount of memory for operator 1"), "{told}");
    }
}

/// Dictionaries as Python's `pickle.dumps` writes them in protocols 0, 1 and 2.
fn a_file_of_any_protocol_is_read() {
    let entries = b"(U\x12memories_allocated}U\x0fmemories_active}U\x11memories_reserved}U\x07markers}\
                    U\x11num_alloc_retriesK\x05u.";
    let old = tracker_pickle("(d", "");
    let folder = folder();
    let path = folder.path().join("run.pickle");
    for (bytes, retries) in [
        (old, 3),
        ([&b"}"[..], entries].concat(), 5),
        ([&b"\x80\x02}"[..], entries].concat(), 5),
        ([&b"ccollections\nOrderedDict\n(tR"[..], entries].concat(), 5),
    ] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(TrackerStats::load(&path).unwrap().num_alloc_retries, retries);
    }
}

fn code_in_a_pickle_is_refused_and_not_run() {
    let folder = folder();
    let made = folder.path().join("made");
    let code = format!("cos\nsystem\n(S'touch {}'\ntR.", made.display());
    let told = refused(format!("(dS'memories_allocated'\n{}", code).as_bytes());
    assert!(told.starts_with("at byte 24: refused GLOBAL of `os.system`"), "{told}");
    assert!(!made.exists());
    // Terminal control characters, and a very long name.
    let told = refused(format!("(c\u{1b}[2J\u{202e}\n{}\n.", "x".repeat(1 << 20)).as_bytes());
    assert!(told.starts_with("at byte 1: refused GLOBAL of `\\u{1b}[2J\\u{202e}.xxx"), "{told}");
    assert!(told.len() < 200 && told.ends_with("xxx…`: a pickle may only hold data"), "{told}");
}

fn a_pickle_that_is_cut_off_anywhere() {
    let whole = fs::read(of_pytorch("tiny_transformer.tracker.pickle")).unwrap();
    for end in (1..whole.len()).step_by(997) {
        let told = refused(&whole[..end]);
        assert!(told.contains("truncated"), "{end}: {told}");
    }
}

fn pickles_of_other_things() {
    for (bytes, message) in [
        (
            &b"(dS'segments'\n(ls."[..],
            "it is a snapshot of allocators, such as `torch.cuda.memory._dump_snapshot` writes",
        ),
        (b"\x80\x04}.", "it is a pickle of a dict without `memories_allocated`"),
        (b"\x80\x04]K\x01a.", "it is a pickle of a list or tuple"),
        (b"\x80\x04N.", "it is a pickle of None"),
    ] {
        assert_eq!(refused(bytes), format!("at byte 0: not a memory tracker's file: {message}"));
    }
    let told = refused(b"(dS'memories_allocated'\n(ds.");
    assert!(told.ends_with("`memories_active` is missing"), "{told}");
}
