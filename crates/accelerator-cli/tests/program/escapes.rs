//! Text and file names in the output of `accel` cannot control a terminal.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use accelerator_tracker::snapshot::{Annotation, Frame, MemorySnapshot, Setting};
use accelerator_tracker::tracker::{Marker, MemoryUse, OperatorStats, TrackerStats};

use crate::accel::{accel, empty_folder, of_pytorch};

/// Text that clears the screen, sets the title, changes colours, reverses and hides text, and begins a line that looks
/// like ours.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200b}\r\nFORGED: </script>";

/// Returns the same text on one line.
fn on_one_line() -> String {
    HOSTILE.replace("\r\n", "\r")
}

#[track_caller]
fn is_clean(text: &str, what: &str) {
    let obeyed = |c: char| {
        c.is_control() && c != '\n' || matches!(c, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if let Some(at) = text.find(obeyed) {
        let line = text[..at].lines().count();
        panic!("{what}, line {line}: {:?}", text.lines().nth(line.saturating_sub(1)));
    }
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what}: {text}");
}

/// Runs the program. Checks everything that it prints, and all files that it writes except PNGs.
fn said(arguments: &[&OsStr], written: &[PathBuf]) -> Output {
    let ended = accel(&[]).args(arguments).output().unwrap();
    is_clean(&String::from_utf8_lossy(&ended.stdout), &format!("standard output of {arguments:?}"));
    is_clean(&String::from_utf8_lossy(&ended.stderr), &format!("standard error of {arguments:?}"));
    for path in written.iter().filter(|path| path.extension() != Some(OsStr::new("png"))) {
        if let Ok(text) = std::fs::read_to_string(path) {
            is_clean(&text, &format!("{path:?} of {arguments:?}"));
            std::fs::remove_file(path).unwrap();
        }
    }
    ended
}

fn snapshot() -> MemorySnapshot {
    let mut snapshot = MemorySnapshot::read(of_pytorch("tiny_transformer.snapshot.pickle")).unwrap();
    let frame = Arc::new(Frame { name: HOSTILE.into(), filename: HOSTILE.into(), line: 1 });
    let frames: Arc<[Arc<Frame>]> = [frame].into();
    let entries = snapshot.device_traces.iter_mut().flatten();
    let times: Vec<i64> = entries
        .map(|entry| {
            entry.frames = frames.clone();
            entry.time_us
        })
        .collect();
    let annotation = |stage: &str| Annotation {
        stage: stage.into(),
        name: HOSTILE.into(),
        device: 0,
        time_us: times[times.len() / 2],
    };
    snapshot.annotations = ["START", HOSTILE].map(annotation).to_vec();
    snapshot.settings.retain(|(name, _)| name != "PYTORCH_CUDA_ALLOC_CONF");
    snapshot.settings.push(("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Setting::Text(format!("{HOSTILE}:1").into())));
    snapshot.settings.push((HOSTILE.to_owned(), Setting::Text(HOSTILE.into())));
    snapshot
}

fn tracker() -> TrackerStats {
    let memory = |allocated| MemoryUse { allocated, active: allocated, reserved: 9 << 20 };
    let operator =
        |size: u64| OperatorStats { name: format!("{HOSTILE}.mm_{size}"), time: None, memory: memory(size << 20) };
    TrackerStats {
        device: Some(HOSTILE.to_owned()),
        start: Some(memory(0)),
        operators: (1..5).map(operator).collect(),
        markers: vec![Marker { name: HOSTILE.to_owned(), position: 2, time: None }],
        ..TrackerStats::default()
    }
}

/// Creates valid and broken files of all kinds that contain the hostile text.
fn files(folder: &Path) -> Vec<PathBuf> {
    let line = on_one_line();
    let text = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let scopes = format!("# {line}\n# scope {line}\nalloc 1 52428800 0\nfree 1\n# step {line}\nalloc 2 99 0\n");
    let header = r#"{"format":"accelerator-tracker","version":1,"device":null,"total_memory":null,"start":null}"#;
    let mut files = vec![
        text("sound.trace", scopes),
        text("settings.trace", format!("conf {line}:1\nalloc 1 5 0\n")),
        text("later.trace", format!("alloc 1 5 0\nconf max_split_size_mb:{line}\n")),
        text("operation.trace", format!("{line}\n")),
        text("number.trace", format!("alloc {line} 5 0\n")),
        text("end.trace", format!("free 1 {line}\n")),
        text("foreign.jsonl", format!("{{\"format\":{HOSTILE:?}}}\n")),
        text("kind.jsonl", format!("{header}\n{{\"kind\":\"operator\",\"name\":{{{line:?}:1}}}}\n")),
        text("refused.pickle", format!("c{line}\nsystem\n(S'x'\ntR.")),
        text("keys.pickle", format!("(dV{line}\nI1\ns.")),
    ];
    let [jsonl, pickle, whole] = ["t.jsonl", "t.pickle", "s.pickle"].map(|name| folder.join(name));
    tracker().save(&jsonl).unwrap();
    tracker().save_pytorch(&pickle).unwrap();
    snapshot().write(&whole).unwrap();
    files.extend([jsonl, pickle, whole]);
    files
}

#[test]
fn escapes_in_files_reached_the_terminal() {
    let folder = empty_folder("escapes");
    let outputs = ["o.html", "o.svg", "o.png", "o.json", "o.trace", "o.md"].map(|name| folder.join(name));
    let [page, svg, png, events, trace, _] = &outputs;
    let mut told = 0;
    for input in files(&folder) {
        let input = input.as_os_str();
        for arguments in [
            &["replay"][..],
            &["replay", "--plain"],
            &["replay", "--compare"],
            &["replay", "--compare", "--markdown"],
            &["advise"],
            &["convert"],
            &["tracker"],
        ] {
            let arguments: Vec<_> = arguments.iter().map(OsStr::new).chain([input]).collect();
            told += usize::from(String::from_utf8_lossy(&said(&arguments, &[]).stderr).contains(r"\u{1b}"));
        }
        let option = |option: &'static str, path: &'_ Path| [OsStr::new(option).to_owned(), path.into()];
        let given: Vec<_> = [option("-o", page), option("-o", svg), option("-o", png), option("--perfetto", events)]
            .into_iter()
            .flatten()
            .chain(option("--picture", Path::new("largest")))
            .collect();
        let report: Vec<&OsStr> =
            [OsStr::new("report"), input].into_iter().chain(given.iter().map(|text| text.as_os_str())).collect();
        said(&report, &outputs);
        said(&[OsStr::new("convert"), input, OsStr::new("-o"), trace.as_os_str()], &outputs);
    }
    assert!(told > 20, "only {told} messages show text from the files");
}

#[test]
fn names_of_files_reached_the_terminal() {
    let folder = empty_folder("escapes_in_names");
    let name = HOSTILE.replace('/', "|");
    let [trace, snapshot, tracker, page, missing] =
        ["trace", "pickle", "jsonl", "html", "missing"].map(|ending| folder.join(format!("{name}.{ending}")));
    let wrong = folder.join(&name);
    std::fs::write(&trace, "alloc 1 52428800 0\nfree 1\nalloc 2 99 0\nfail_mallocs 1\n").unwrap();
    std::fs::write(&wrong, "alloc x\n").unwrap();
    std::fs::copy(of_pytorch("tiny_transformer.snapshot.pickle"), &snapshot).unwrap();
    TrackerStats::default().save(&tracker).unwrap();
    let mut shown = 0;
    let mut say = |arguments: &[&OsStr]| {
        let Output { stdout, stderr, .. } = said(arguments, &[]);
        let all = [stdout, stderr].concat();
        shown += usize::from(String::from_utf8_lossy(&all).contains(r"\u{1b}[2J"));
    };
    let word = OsStr::new;
    for input in [&trace, &snapshot, &tracker, &missing, &wrong].map(|path| path.as_os_str()) {
        say(&[word("replay"), input]);
        say(&[word("replay"), word("--compare"), input]);
        say(&[word("replay"), word("--compare"), word("--markdown"), input]);
        say(&[word("replay"), word("--device"), word("7"), input]);
        say(&[word("advise"), input]);
        say(&[word("convert"), input]);
        say(&[word("convert"), input, word("-o"), input]);
        say(&[word("tracker"), input]);
        say(&[word("report"), input, word("-o"), page.as_os_str()]);
        say(&[word("report"), input, word("--device"), word("7"), word("-o"), page.as_os_str()]);
        say(&[word("report"), input, word("-o"), input]);
        say(&[word("report"), input, word("--pictures"), wrong.as_os_str()]);
        say(&[word("report"), input, word("--perfetto"), missing.join("x").as_os_str()]);
        say(&[word("info"), input]);
        say(&[input]);
        say(&[word(&format!("--{HOSTILE}"))]);
        say(&[word("report"), word(&format!("--{HOSTILE}"))]);
        say(&[word("replay"), word("--conf"), word(&format!("{HOSTILE}:1"))]);
        say(&[word("conformance"), word("--backend"), word("sim"), word(HOSTILE)]);
    }
    say(&[word("verify"), word("--backend"), word("host"), word("-o"), missing.join("x").as_os_str()]);
    assert!(shown > 40, "only {shown} messages contain the name");
}

#[test]
fn escapes_in_the_environment_reached_the_terminal() {
    for (name, arguments) in [
        ("ACCELERATOR_ALLOC_CONF", &["replay"][..]),
        ("ACCELERATOR_HOST_CAPACITY", &["info"]),
        ("ACCELERATOR_HOST_DEVICES", &["info"]),
        ("ACCELERATOR_OPENCL_DEVICES", &["info"]),
        ("ACCELERATOR_VULKAN_DEVICES", &["info"]),
        ("ACCELERATOR_VULKAN_LOADER", &["info"]),
        ("ACCELERATOR_VULKAN_QUEUES", &["info"]),
        ("OCL_ICD_VENDORS", &["info"]),
        ("ZE_ENABLE_ALT_DRIVERS", &["info"]),
    ] {
        let ended = accel(arguments).env(name, HOSTILE).output().unwrap();
        for text in [ended.stdout, ended.stderr] {
            is_clean(&String::from_utf8_lossy(&text), name);
        }
    }
}
