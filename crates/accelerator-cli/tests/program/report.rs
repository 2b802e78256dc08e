//! `accel report`.

use std::io::Write;
use std::path::Path;

use accelerator_cli::trace::BUNDLED;
use accelerator_tracker::snapshot::MemorySnapshot;
use accelerator_tracker::tracker::TrackerStats;

use crate::accel::{Ended, accel, file, folder, of_pytorch, run, run_with_input};

#[test]
fn the_bundled_trace_as_page_pictures_and_events() {
    let folder = folder("report");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (page, picture, events, all) = (path("r.html"), path("traces.png"), path("events.json"), path("all"));
    let arguments =
        ["report", "-o", &page, "-o", &picture, "--picture", "traces", "--perfetto", &events, "--pictures", &all];
    let ended = run(&arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    assert!(ended.out.starts_with(&format!("{page}: ")) && ended.out.contains(&format!("{events}: ")), "{}", ended.out);
    let text = std::fs::read_to_string(&page).unwrap();
    // The figures that a replay prints, and the comments of the trace.
    for part in ["<dd>7.02 GiB", "<dd>7.38 GiB", "<dd>19,178", "GPT-2 small, batch 8 seq 512", "step 3 batch 8"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    assert!(std::fs::read_to_string(events).unwrap().starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
    let mut pictures: Vec<_> = std::fs::read_dir(all).unwrap().map(|file| file.unwrap().file_name()).collect();
    pictures.sort();
    assert_eq!(
        pictures,
        [
            "largest.svg",
            "lifetimes.svg",
            "memory.svg",
            "segments_by_scope.svg",
            "segments_by_size.svg",
            "segments_by_state.svg",
            "sizes.svg",
            "traces.svg"
        ]
    );
}

#[test]
fn scopes_steps_and_settings_of_a_trace_count() {
    let page = folder("report").join("scoped.html");
    let trace = b"# scope h.0 / aten::gelu\nalloc 1 3145728 0\n# step 2\nrecord 1 1\nfree 1\nalloc 2 1048576 1\n";
    let arguments = ["report", "-", "-o", page.to_str().unwrap(), "--conf", "large_segment_size_mb:32"];
    let ended = run_with_input(&arguments, trace);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    let text = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<th scope=\"row\">h.<wbr>0 /<wbr> aten::<wbr>gelu</th>",
        "\"step 2\"",
        "free 3.00 MiB",
        "<dd>34.00 MiB<small>at call 3",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn files_of_pytorch_make_reports() {
    let page = folder("report").join("pytorch.html");
    let page = page.to_str().unwrap();
    for (name, parts) in [
        ("tiny_transformer.snapshot.pickle", ["peak reserved</dt><dd>232.00 MiB", "id=\"map\"", "value=\"time\""]),
        ("tiny_transformer.tracker.pickle", ["peak reserved</dt><dd>232.00 MiB", "fw_bw_boundary", "_foreach_sqrt"]),
    ] {
        let ended = run(&["report", &of_pytorch(name), "-o", page]);
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        let text = std::fs::read_to_string(page).unwrap();
        for part in parts {
            assert!(text.contains(part), "{name}: {part}");
        }
    }
    run(&["report", &of_pytorch("tiny_transformer.snapshot.pickle"), "-o", page, "--device", "9"])
        .fails(1, "nothing was recorded for device 9; recorded devices: 0");
}

/// Returns the text of a page without the name of its input.
fn page_of(input: &str, content: &[u8], more: &[&str]) -> String {
    let page = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
    let path = page.path().to_str().unwrap();
    let ended = run_with_input(&[&["report", input, "-o", path][..], more].concat(), content);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    let text = std::fs::read_to_string(path).unwrap();
    let name = Path::new(input).file_name().unwrap().to_str().unwrap();
    text.replace(if input == "-" { "standard input" } else { name }, "INPUT")
}

#[test]
fn a_report_is_the_same_from_wherever_its_input_comes() {
    let stats = TrackerStats::load(of_pytorch("tiny_transformer.tracker.pickle")).unwrap();
    let lines = folder("report").join("lines.jsonl");
    stats.save(&lines).unwrap();
    let lines = lines.to_str().unwrap().to_owned();
    for path in [of_pytorch("tiny_transformer.snapshot.pickle"), of_pytorch("tiny_transformer.tracker.pickle"), lines] {
        let content = std::fs::read(&path).unwrap();
        let plain = page_of(&path, b"", &[]);
        assert!(plain.contains("232.00 MiB"), "{path}");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&content).unwrap();
        let compressed = file("report_input.gz", &encoder.finish().unwrap());
        assert!(page_of(compressed.to_str().unwrap(), b"", &[]) == plain, "{path}");
        assert!(page_of("-", &content, &[]) == plain, "{path}");
    }
}

#[test]
fn all_keys_decide_the_kind_of_a_pickle() {
    let pickle = std::fs::read(of_pytorch("tiny_transformer.tracker.pickle")).unwrap();
    let (header, rest) = pickle.split_at(14);
    assert!(header.starts_with(b"\x80\x05\x95") && header.ends_with(b"}\x94("));
    // Another key of 600 letters before it, with the value 1.
    let other = [b"X\x58\x02\0\0".as_slice(), &[b'k'; 600], b"K\x01"].concat();
    let late = [b"\x80\x05}\x94(".as_slice(), &other, rest].concat();
    let late = page_of(file("late.pickle", &late).to_str().unwrap(), b"", &[]);
    assert!(late == page_of(&of_pytorch("tiny_transformer.tracker.pickle"), b"", &[]));

    // {'a': 1}, and a tracker file with only one key
    run_with_input(&["report", "-", "-o", "r.html"], b"\x80\x02}X\x01\0\0\0aK\x01s.")
        .fails(1, "standard input: at byte 2: not a snapshot, but another pickle: a dict without `segments`");
    run_with_input(&["report", "-", "-o", "r.html"], b"\x80\x02}X\x12\0\0\0memories_allocated}s.")
        .fails(1, "standard input: at byte 2: `memories_active` is missing");
}

#[test]
fn the_device_of_a_report_is_that_of_a_conversion() {
    let mut snapshot = MemorySnapshot::read(of_pytorch("tiny_transformer.snapshot.pickle")).unwrap();
    snapshot.segments.iter_mut().for_each(|segment| segment.device = 1);
    let short = snapshot.device_traces[0][..9].to_vec();
    snapshot.device_traces.insert(0, short);
    let path = folder("report").join("two_devices.pickle");
    snapshot.write(&path).unwrap();
    let path = path.to_str().unwrap();
    let warning = "warning: devices 0, 1 have histories; using that of device 1: --device chooses another";
    let page = folder("report").join("two_devices.html");
    let page = page.to_str().unwrap();
    for ended in [run(&["convert", path]), run(&["report", path, "-o", page])] {
        assert!(ended.error.contains(warning), "{}", ended.error);
    }
    let chosen = page_of(path, b"", &[]);
    assert!(chosen.contains("232.00 MiB") && chosen == page_of(path, b"", &["--device", "1"]));
    assert!(!page_of(path, b"", &["--device", "0"]).contains("232.00 MiB"));
}

#[test]
fn options_that_do_nothing_are_refused() {
    let (snapshot, tracker) =
        (of_pytorch("tiny_transformer.snapshot.pickle"), of_pytorch("tiny_transformer.tracker.pickle"));
    for (input, options, kind) in [
        (&snapshot, &["--conf", "max_split_size_mb:64"], "a snapshot: `--conf`"),
        (&snapshot, &["--capacity", "8GiB"], "a snapshot: `--capacity`"),
        (&tracker, &["--conf", "max_split_size_mb:64"], "a tracker file: `--conf`"),
        (&tracker, &["--capacity", "8GiB"], "a tracker file: `--capacity`"),
        (&tracker, &["--device", "5"], "a tracker file: `--device`"),
    ] {
        run(&[&["report", input, "-o", "r.html"][..], options].concat())
            .fails(2, &format!("is {kind} has no effect on it"));
    }
    run(&["report", "-o", "r.html", "--device", "3"]).fails(2, "is a trace: `--device` has no effect on it");
    run(&["report", "-o", "r.html", "--dark"]).fails(2, "`--dark` needs a PNG output");
    run(&["report", "-o", "r.html", "--picture", "sizes"]).fails(2, "`--picture` needs a .svg or .png output");
}

#[test]
fn input_with_nothing_to_show_is_refused() {
    let empty = file("empty.trace", b"");
    run(&["report", empty.to_str().unwrap(), "-o", "r.html"])
        .fails(1, "empty.trace: nothing to report: it has no operations");
    run_with_input(&["report", "-", "-o", "r.html"], b"# nothing\ncapacity 4096\n")
        .fails(1, "standard input: nothing to report: it has no operations");
    let tracker = of_pytorch("tiny_transformer.tracker.pickle");
    for (picture, lacks) in
        [("segments", "segments"), ("sizes", "individual allocations"), ("memory-over-time", "times")]
    {
        let path = folder("report").join("nothing.svg");
        run(&["report", &tracker, "-o", path.to_str().unwrap(), "--picture", picture])
            .fails(1, &format!("nothing to draw: tiny_transformer.tracker.pickle has no {lacks}"));
        assert!(!path.exists());
    }
}

#[test]
fn settings_of_the_environment_are_those_of_traces() {
    let path = folder("report").join("environment.html");
    let report = |input: &str| {
        let mut command = accel(&["report", input, "-o", path.to_str().unwrap()]);
        Ended::of(command.env("ACCELERATOR_ALLOC_CONF", "nonsense").output().unwrap())
    };
    for name in ["tiny_transformer.snapshot.pickle", "tiny_transformer.tracker.pickle"] {
        assert_eq!(report(&of_pytorch(name)).status, Some(0));
    }
    report(file("environment.trace", b"alloc 1 5 0\n").to_str().unwrap()).fails(1, "nonsense");
}

#[test]
fn files_that_cannot_be_read_or_written_are_reported() {
    run(&["report"]).fails(2, "required");
    run(&["report", "some.trace", "--device", "1"]).fails(2, "--output <FILE>|--pictures <FOLDER>|--perfetto");
    run(&["report", "-o", "report.pdf"]).fails(2, "expected a file name that ends in .html, .svg or .png");
    run(&["report", "-o", "r.svg", "--picture", "sunset"]).fails(2, "possible values: memory");
    run(&["report", "/no/such/file", "-o", "r.html"]).fails(1, "/no/such/file: No such file");
    run(&["report", "-o", "/no/such/folder/r.html"]).fails(1, "/no/such/folder/r.html: cannot be written");
    let whole = std::fs::read(of_pytorch("tiny_transformer.snapshot.pickle")).unwrap();
    let half = file("half.pickle", &whole[..whole.len() / 2]);
    run(&["report", half.to_str().unwrap(), "-o", "r.html"]).fails(1, "half.pickle: at byte ");
    let cut = file("cut.trace.zst", &BUNDLED[3].file[..9_000]);
    run(&["report", cut.to_str().unwrap(), "-o", "r.html"]).fails(1, "truncated or damaged");
    run_with_input(&["report", "-", "-o", "r.html"], b"alloc 1 5 0\nalloc 1 5 0\n")
        .fails(1, "standard input:2: allocation 1 is already live");
}
