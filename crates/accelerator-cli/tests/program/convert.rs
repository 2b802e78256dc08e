//! Snapshots as input and output.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::accel::{file, folder, run, run_with_input};

/// Returns the path of a snapshot that PyTorch wrote in a training program: 232 MiB reserved, 84.25 MiB allocated.
fn snapshot() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pytorch/tiny_transformer.snapshot.pickle")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_snapshot_of_pytorch_is_replayed() {
    let snapshot = snapshot();
    for backend in ["sim", "host"] {
        let replayed = run(&["replay", text(&snapshot), "--backend", backend]);
        assert_eq!(replayed.status, Some(0), "{}", replayed.error);
        for row in ["84.25 MiB, as recorded", "232.00 MiB, as recorded"] {
            assert!(replayed.out.contains(row), "{row}: {}", replayed.out);
        }
    }
    let other = run(&["replay", text(&snapshot), "--backend", "sim", "--conf", "large_segment_size_mb:64"]);
    assert!(other.out.contains("84.25 MiB, as recorded"), "{}", other.out);
    assert!(other.out.contains("MiB, recorded 232.00 MiB"), "{}", other.out);
    let small = run(&["replay", text(&snapshot), "--backend", "sim", "--capacity", "100MiB"]);
    assert!(small.out.contains("requests out of memory"), "{}", small.out);
}

#[test]
fn a_trace_comes_out_the_same_from_wherever_the_snapshot_comes() {
    let plain = run(&["convert", text(&snapshot())]);
    assert_eq!(plain.status, Some(0), "{}", plain.error);
    assert!(plain.error.contains("operations of device 0"), "{}", plain.error);
    assert!(plain.out.lines().count() > 2000);

    let content = std::fs::read(snapshot()).unwrap();
    assert!(run_with_input(&["convert", "-"], &content).out == plain.out);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&content).unwrap();
    let compressed = encoder.finish().unwrap();
    assert!(run(&["convert", text(&file("snapshot.pickle.gz", &compressed))]).out == plain.out);

    for name in ["converted.trace", "converted.trace.gz"] {
        let trace = folder("convert").join(name);
        assert_eq!(run(&["convert", text(&snapshot()), "-o", text(&trace)]).status, Some(0));
        let from_trace = run(&["replay", "--plain", "-p", text(&trace)]);
        assert_eq!(from_trace.status, Some(0), "{}", from_trace.error);
        assert!(from_trace.out == run(&["replay", "--plain", "-p", text(&snapshot())]).out);
    }
}

#[test]
fn a_file_stays_until_the_trace_is_whole() {
    let content = std::fs::read(snapshot()).unwrap();
    let own = file("own.pickle", &content);
    run(&["convert", text(&own), "-o", text(&own)]).fails(1, "own.pickle: the output would replace the input");
    assert!(std::fs::read(&own).unwrap() == content);

    let earlier = file("earlier.trace", b"stats\n");
    let cut = file("cut_late.pickle", &content[..content.len() - 10]);
    let message = format!("cut_late.pickle: at byte {}", content.len() - 10);
    for ending in ["trace", "gz"] {
        let output = earlier.with_extension(ending);
        std::fs::write(&output, "stats\n").unwrap();
        run(&["convert", text(&cut), "-o", text(&output)]).fails(1, &message);
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "stats\n");
    }
    let done = run(&["convert", text(&own), "-o", text(&earlier)]);
    assert_eq!(done.status, Some(0), "{}", done.error);
    assert!(std::fs::read_to_string(&earlier).unwrap() == run(&["convert", text(&own)]).out);
}

#[test]
#[cfg(unix)]
fn a_trace_can_be_written_to_a_device() {
    let piped = run(&["convert", text(&snapshot()), "-o", "/dev/stdout"]);
    assert!(piped.out == run(&["convert", text(&snapshot())]).out, "{}", piped.error);
}

#[test]
fn a_snapshot_of_a_replay_is_replayed_again() {
    let trace = "capacity 100000000\nalloc 1 70000000 0\nfree 1\nalloc 2 90000000 0\nalloc 3 500 1\n";
    let path = folder("convert").join("replayed.pickle");
    let first = run_with_input(&["replay", "--plain", "-p", "--snapshot", text(&path), "-"], trace.as_bytes());
    assert_eq!(first.status, Some(0), "{}", first.error);
    let again = run(&["replay", "--plain", "-p", text(&path)]);
    assert_eq!((again.status, again.out), (Some(0), first.out));
}

#[test]
fn input_that_is_not_a_snapshot_is_reported() {
    run(&["convert"]).fails(2, "Usage: accel convert");
    run(&["replay", "--device", "0"]).fails(2, "(bundled) is a trace: `--device` has no effect on it");
    run(&["convert", "/no/such/file"]).fails(1, "/no/such/file: No such file");
    run(&["convert", text(&file("no.pickle", b"alloc 1 512 0\n"))])
        .fails(1, "no.pickle: not a snapshot, because it is not a pickle");
    run(&["convert", text(&snapshot()), "--device", "3"])
        .fails(1, "nothing was recorded for device 3; recorded devices: 0");
    run(&["convert", text(&snapshot()), "-o", "/no/such/folder/x"]).fails(1, "/no/such/folder/x: cannot be written");
    let content = std::fs::read(snapshot()).unwrap();
    let cut = file("cut.pickle", &content[..content.len() / 2]);
    run(&["convert", text(&cut)]).fails(1, &format!("cut.pickle: at byte {}", content.len() / 2));
    run(&["replay", text(&cut)]).fails(1, &format!("cut.pickle: at byte {}", content.len() / 2));
    // {'segments': [], 'device_traces': []}
    let empty = file("empty.pickle", b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]u.");
    run(&["convert", text(&empty)]).fails(1, "neither a history nor segments");
}
