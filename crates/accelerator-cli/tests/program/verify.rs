//! `accel verify`: the report, and the reasons for which there is none.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use accelerator_cli::trace::{BUNDLED, Op};
use time::{Date, Duration as Span, Month, OffsetDateTime};

use crate::accel::{Ended, accel, folder, run};

const SECTIONS: [&str; 5] = ["Conformance", "Kernel", "Replays", "Bandwidth", "Cost of calls"];

/// Too little memory for some of the bundled traces.
const CAPACITY: (&str, &str) = ("ACCELERATOR_HOST_CAPACITY", "6GiB");

fn on_small_host(arguments: &[&str]) -> Ended {
    Ended::of(accel(arguments).env(CAPACITY.0, CAPACITY.1).output().unwrap())
}

/// Returns the rows of all tables in a part of the report, as a map from the first cell to the others.
fn rows(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let cells = |line: &'_ str| line.starts_with("| ");
    let rows = text.lines().filter(|line| cells(line));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        (cells.next().unwrap(), cells.collect())
    })
    .collect()
}

fn section<'a>(report: &'a str, title: &str) -> &'a str {
    let start = report.find(&format!("## {title}: passed\n")).unwrap_or_else(|| panic!("{title}:\n{report}"));
    report[start + 3..].split("\n## ").next().unwrap()
}

fn numbers(cells: &[&str]) -> Vec<f64> {
    cells.iter().map(|cell| cell.parse().unwrap_or_else(|_| panic!("`{cell}` in {cells:?}"))).collect()
}

#[test]
#[ignore = "takes long; .ci/run runs it"]
fn the_report_of_the_host_agrees_with_other_commands() {
    let path = folder("verify").join("report.md");
    let told = thread::spawn(|| on_small_host(&["conformance", "--backend", "host"]).out);
    let ended = on_small_host(&["verify", "--backend", "host", "--quick", "-o", path.to_str().unwrap()]);
    let report = std::fs::read_to_string(&path).unwrap();
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), ""), "{}\n{report}", ended.error);
    assert!(report.starts_with("# accel verify on host:0 (Host, "), "{report}");
    assert!(report.lines().next().unwrap().ends_with("): all passed"), "{report}");
    let titles = report.lines().filter_map(|line| line.strip_prefix("## "));
    assert!(titles.eq(SECTIONS.map(|title| format!("{title}: passed"))), "{report}");
    subject(&report);
    conformance(section(&report, "Conformance"), &told.join().unwrap());
    let kernel = rows(section(&report, "Kernel"));
    assert_eq!(kernel["16777216"], ["0", "0"]);
    replays(section(&report, "Replays"));
    measurements(&report);
}

fn subject(report: &str) {
    let facts = rows(report.split("\n## ").next().unwrap());
    assert_eq!(facts["memory"], ["6.00 GiB free of 6.00 GiB, counting only this process"]);
    // The environment may also mention devices.
    assert!(facts["environment"][0].ends_with(&format!("{}={}", CAPACITY.0, CAPACITY.1)), "{facts:?}");
    assert!(facts["host"][0].starts_with(std::env::consts::OS), "{facts:?}");
    let version = run(&["--version"]).out;
    let version = version.trim().trim_start_matches("accel ");
    assert!(facts["accel and core"][0].starts_with(&format!("{version}, ")), "{facts:?}");
    assert!(facts["took"][0].ends_with(" s (--quick)"), "{facts:?}");

    let parts: Vec<i32> = facts["date"][0].split(['-', 'T', ':', 'Z']).flat_map(str::parse).collect();
    let [year, month, day, hour, minute, second] = parts[..] else { panic!("{facts:?}") };
    let month = Month::try_from(month as u8).unwrap();
    let date = Date::from_calendar_date(year, month, day as u8).unwrap();
    let date = date.with_hms(hour as u8, minute as u8, second as u8).unwrap().assume_utc();
    let age = OffsetDateTime::now_utc() - date;
    assert!((Span::ZERO..Span::minutes(10)).contains(&age), "{date}");
}

fn conformance(text: &str, told: &str) {
    let [passed, failed, skipped] = rows(text)["all"][..] else { panic!("{text}") };
    let expected = format!("{passed} passed; {failed} failed; {skipped} ignored;");
    assert!(told.contains(&expected), "expected `{expected}` in:\n{told}");
    assert!(passed.parse::<u32>().unwrap() > 50, "{text}");
    let reason = "`host::A05_current_device_per_thread`: skipped: the current device belongs to the facade";
    assert!(text.contains(reason), "{text}");
}

fn replays(text: &str) {
    let rows = rows(text);
    for trace in &BUNDLED {
        let [calls, time, out_of_memory, "equal"] = rows[trace.name][..] else { panic!("{text}") };
        let ops = trace.source().unwrap().map(|line| line.unwrap().op);
        let made = ops.filter(|op| matches!(op, Op::Alloc { .. } | Op::Free { .. } | Op::Record { .. }));
        let (made, calls) = (made.count(), calls.parse::<usize>().unwrap());
        let out_of_memory: usize = out_of_memory.parse().unwrap();
        // A refused request has no later record or free.
        let all = if out_of_memory == 0 { calls == made } else { calls < made };
        assert!(all, "{} has {made} calls:\n{text}", trace.name);
        // According to BENCHMARKS.md and the replay command, its peak is 7.00 GiB.
        assert!(trace.name != "gpt2_train" || out_of_memory > 0, "{text}");
        assert!(numbers(&[time])[0] > 0.0, "{text}");
    }
    assert!(text.contains("Each device had 4608 MiB"), "three quarters of the free memory: {text}");
}

fn measurements(report: &str) {
    let bandwidth = rows(section(report, "Bandwidth"));
    for size in ["1.00 MiB", "16.00 MiB"] {
        let speeds = numbers(&bandwidth[size]);
        assert!(speeds.len() == 5 && speeds.iter().all(|speed| (0.01..1e4).contains(speed)), "{report}");
    }
    let cost = rows(section(report, "Cost of calls"));
    for size in ["4.00 KiB", "1.00 MiB", "32.00 MiB", "256.00 MiB"] {
        let [driver, cached, ratio] = numbers(&cost[size])[..] else { panic!("{report}") };
        assert!(driver > 0.0 && cached > 0.0 && (ratio - driver / cached).abs() < 0.1 + ratio / 50.0, "{report}");
    }
    for call in ["record an event", "synchronize an idle stream"] {
        assert!(numbers(&cost[call])[0] > 0.0, "{report}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_reported_before_the_work() {
    let started = Instant::now();
    let path = "/no/such/folder/report.md";
    run(&["verify", "--backend", "host", "--output", path]).fails(1, &format!("accel: {path}: cannot be written: "));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn without_a_device_there_is_a_reason_instead_of_a_report() {
    for backend in ["cuda", "xpu", "opencl", "vulkan"] {
        let path = folder("verify").join(format!("{backend}.md"));
        let arguments = ["verify", "--backend", backend, "-o", path.to_str().unwrap()];
        let ended = Ended::of(accel(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        ended.fails(1, &format!("accel: no accelerator is available: {backend}: "));
        assert!(ended.out.is_empty() && !Path::new(&path).exists(), "{}", ended.out);
    }
    run(&["verify"]).fails(2, "--backend <BACKEND>");
}
