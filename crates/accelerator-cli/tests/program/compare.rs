//! `accel replay --compare` and `accel advise`.

use crate::accel::{Ended, accel, file, run, run_with_input};

const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/");
const SNAPSHOT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/pytorch/tiny_transformer.snapshot.pickle");
const EXPANDABLE: &str = "expandable_segments:True";

/// Returns the other cells of the last line in the Markdown tables whose first cell is `first`.
fn cells<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = table.lines().map(|line| line.split('|').map(str::trim).skip(1).collect::<Vec<_>>());
    let found = lines.rfind(|cells| cells.first() == Some(&first));
    let mut cells = found.unwrap_or_else(|| panic!("no `{first}` in:\n{table}"));
    cells.pop();
    cells.split_off(1)
}

#[test]
fn shares_and_calls_are_those_of_pytorchs_own_allocator() {
    let paths = ["resnet50_train", "maskrcnn_train"].map(|name| format!("{BUNDLED}{name}.trace.zst"));
    let ended = run(&["replay", "--compare", "--markdown", &paths[0], &paths[1]]);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    assert!(ended.error.is_empty(), "no bar where there is no terminal: {}", ended.error);
    let (totals, matrices) = ended.out.split_once("\nShare of").unwrap();
    let (shares, _) = matrices.split_once("\nSmallest").unwrap();
    // From a replay through PyTorch's allocator, with default settings and with expandable segments.
    for (trace, requested, expected) in [
        ("resnet50_train", "2.83 GiB", ["86.1 %, 106", "96.8 %, 118"]),
        ("maskrcnn_train", "1.99 GiB", ["58.7 %, 91", "84.3 %, 83"]),
    ] {
        let cells = cells(shares, trace);
        assert_eq!((cells[0], &cells[1..3]), (requested, &expected[..]), "{shares}");
    }
    // sqrt(1 / 0.861 / 0.587) = 1.41 and 1 / 0.587 = 1.70; sqrt(1 / 0.968 / 0.843) = 1.11 and 1 / 0.843 = 1.19
    for (setting, mean, worst, calls) in [("default", "1.4", "1.70", "197"), (EXPANDABLE, "1.1", "1.18", "201")] {
        let cells = cells(totals, setting);
        assert!(cells[0].starts_with(mean) && cells[1].starts_with(worst), "{totals}");
        assert_eq!((cells[2], cells[3]), ("maskrcnn_train", calls), "{totals}");
    }
}

#[test]
fn a_trace_completes_on_the_smallest_device_and_on_none_that_is_smaller_by_a_step() {
    let ended = run(&["replay", "--compare", "--markdown", SNAPSHOT]);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    for (name, conf) in [("default", ""), (EXPANDABLE, EXPANDABLE)] {
        let smallest = cells(&ended.out, name)[4];
        let mebibytes: u64 = smallest.strip_suffix(".00 MiB").unwrap().parse().unwrap();
        let on = |mebibytes: u64| {
            let capacity = format!("{mebibytes}MiB");
            run(&["replay", SNAPSHOT, "--backend", "sim", "--conf", conf, "--capacity", &capacity])
        };
        let enough = on(mebibytes);
        assert_eq!(enough.status, Some(0), "{}", enough.error);
        assert!(!enough.out.contains("out of memory"), "{name}, {smallest}: {}", enough.out);
        let short = on(mebibytes - 2);
        assert!(short.out.contains("requests out of memory"), "{name}, {smallest}: {}", short.out);
    }
}

/// Returns growing requests, each freed before the next: 10 + 20 + … + 100 MiB. The default settings keep all of it
/// reserved.
fn growing() -> String {
    (1..=10).map(|step| format!("alloc {step} {} 0\nfree {step}\n", (step * 10) << 20)).collect()
}

#[test]
fn lines_that_describe_the_device_or_change_settings_are_ignored() {
    let bare = run_with_input(&["replay", "--compare", "--markdown", "-"], growing().as_bytes());
    let cells_of = |ended: &Ended, name| cells(&ended.out, name)[..5].join(", ");
    assert_eq!(cells_of(&bare, "default"), "100.00 MiB, 550.00 MiB, 18.2 %, 10, 100.00 MiB");
    assert_eq!(cells_of(&bare, EXPANDABLE), "100.00 MiB, 100.00 MiB, 100.0 %, 5, 100.00 MiB");

    let lines = format!(
        "capacity 4096\nconf large_segment_size_mb:30\n{}capacity 9\nfail_mallocs 2\nconf caching:False\nstats\ncalls\n{}",
        growing(),
        growing()
    );
    let ended = run_with_input(&["replay", "--compare", "--markdown", "-"], lines.as_bytes());
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    assert!(ended.error.contains("warning: -: ignored 3 lines that change the settings"), "{}", ended.error);
    for name in ["default", EXPANDABLE] {
        assert_eq!(cells_of(&ended, name), cells_of(&bare, name));
    }
    assert!(ended.out.contains("\nas recorded: large_segment_size_mb:30"), "{}", ended.out);
    // Requests of 10 MiB get their own segments, whatever the size of smaller segments is.
    assert_eq!(cells_of(&ended, "as recorded"), cells_of(&bare, "default"));

    let given_back = b"alloc 1 104857600 0\nfree 1\nempty_cache\n";
    let given_back = run_with_input(&["replay", "--compare", "--markdown", "-"], given_back);
    assert_eq!(cells(&given_back.out, "default")[3], "2", "one call to allocate it, one to give it back");

    let text = run_with_input(&["replay", "--compare", "-"], growing().as_bytes());
    assert!(text.out.lines().all(|line| line.chars().count() <= 80), "{}", text.out);
    assert!(text.out.starts_with("standard input: 20 operations, on a simulated device\n"), "{}", text.out);
    let environment = accel(&["replay", "--compare", &format!("{BUNDLED}resnet50_train.trace.zst")])
        .env("ACCELERATOR_ALLOC_CONF", "nonsense")
        .output();
    assert_eq!(Ended::of(environment.unwrap()).status, Some(0));
}

#[test]
fn further_settings_and_a_device_that_is_too_small() {
    let compare = ["replay", "--compare", "--markdown", "-", "--capacity", "60MiB"];
    let further = ["--conf", "caching:False", "--conf", "large_segment_size_mb:32", "--conf", ""];
    let ended = run_with_input(&[&compare[..], &further].concat(), growing().as_bytes());
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    let names: Vec<_> = ended.out.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    assert_eq!(names[names.len() - 2..], ["caching:False", "large_segment_size_mb:32"]);
    assert_eq!(cells(&ended.out, "caching:False")[4], "over 60.00 MiB");
    assert_eq!(cells(&ended.out, "default")[0], "60.00 MiB");
}

#[test]
fn advice_is_what_saves_most_or_to_change_nothing() {
    let advise = |lines: &str| {
        let ended = run_with_input(&["advise", "-"], lines.as_bytes());
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        assert!(ended.out.lines().all(|line| line.chars().count() <= 80), "{}", ended.out);
        ended.out
    };
    // 550 MiB are reserved for 100 MiB. A saving of 82 % is possible, on a device of the same size.
    let grows = advise(&growing());
    for part in [
        "Set expandable_segments:True: standard input then reserves 82 % less memory,",
        "450.00 MiB (81.8 %) is lost",
        "ACCELERATOR_ALLOC_CONF=expandable_segments:True",
    ] {
        let (text, part) = (grows.replace('\n', " "), part);
        assert!(text.contains(part), "expected `{part}` in:\n{grows}");
    }
    let one = advise("alloc 1 104857600 0\n");
    assert!(one.starts_with("Keep the default settings: nothing else saves 5 % of the memory of"), "{one}");
    assert!(!one.contains("How:"), "{one}");
    let done = advise(&format!("conf {EXPANDABLE}\n{}", growing()));
    assert!(done.starts_with("Keep expandable_segments:True: nothing else"), "{done}");
    let never = advise("fraction 0\nalloc 1 5 0\n");
    assert!(never.starts_with("No setting helps: standard input runs out of memory under every setting"), "{never}");
    // These settings reserve 128 MiB for 105 MiB, and the defaults reserve only 105 MiB.
    let large = advise("conf roundup_power2_divisions:2\nalloc 1 110100480 0\n");
    assert!(large.starts_with("Use the default settings: standard input then reserves 17 % less memory"), "{large}");
    assert!(large.contains("How: leave ACCELERATOR_ALLOC_CONF"), "{large}");
}

#[test]
fn advice_for_programs_is_the_same_as_that_for_readers() {
    let advise = |lines: &str| {
        let ended = run_with_input(&["advise", "--json", "-"], lines.as_bytes());
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        serde_json::from_str::<serde_json::Value>(&ended.out).unwrap()
    };
    let grows = advise(&growing());
    assert_eq!((&grows["now"], &grows["set"]), (&"".into(), &EXPANDABLE.into()));
    let text = run_with_input(&["advise", "-"], growing().as_bytes()).out;
    // Host times in the table differ from run to run.
    let around_table = |text: &str| {
        let (verdict, rest) = text.split_once("\n\n").unwrap();
        format!("{verdict}{}", &rest[rest.find("\n\nWhy: ").unwrap()..])
    };
    assert_eq!(around_table(grows["text"].as_str().unwrap()), around_table(&text));
    // 550 MiB are reserved for 100 MiB, in 10 device calls.
    let settings = grows["settings"].as_array().unwrap();
    let of = |name: &str| settings.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!((&of("default")["requested"], &of("default")["reserved"]), (&(100 << 20).into(), &(550 << 20).into()));
    assert_eq!((&of("default")["device_calls"], &of("default")["smallest"]), (&10.into(), &(100 << 20).into()));
    let unmapped = of("policy:compact, no mapping");
    assert_eq!((&unmapped["conf"], &unmapped["virtual_memory"]), (&"policy:compact".into(), &false.into()));

    assert!(advise("alloc 1 104857600 0\n")["set"].is_null());
    let never = advise("fraction 0\nalloc 1 5 0\n");
    assert!(never["settings"].as_array().unwrap().iter().all(|row| row["smallest"].is_null()), "{never}");
    // The recorded settings are worse than the default.
    let large = advise("conf roundup_power2_divisions:2\nalloc 1 110100480 0\n");
    assert!(large["now"].as_str().unwrap().starts_with("roundup_power2_divisions:[1:2,2:2,"), "{large}");
    assert_eq!(large["set"], "");
}

#[test]
fn input_that_cannot_be_compared_is_reported() {
    run(&["advise"]).fails(2, "<TRACE>");
    run(&["advise", "/no/such/file"]).fails(1, "/no/such/file: No such file");
    run(&["replay", "--compare", "/no/such/file"]).fails(1, "/no/such/file: No such file");
    run(&["replay", "--compare", "--conf", "expandable:1"]).fails(2, "unknown key `expandable`");
    run(&["replay", "--compare", "--plain"]).fails(2, "cannot be used with");
    run(&["replay", "--compare", "--backend", "host"]).fails(2, "cannot be used with");
    run(&["replay", "--markdown"]).fails(2, "--compare");
    run(&["replay", "a", "b"]).fails(2, "several traces need `--compare`");
    run(&["replay", "--conf", "", "--conf", ""]).fails(2, "several settings need `--compare`");
    for lines in ["", "alloc 1 0 0\nfree 1\n"] {
        let trace = file("nothing.trace", lines.as_bytes());
        for command in [&["replay", "--compare"][..], &["advise"]] {
            run(&[command, &[trace.to_str().unwrap()]].concat())
                .fails(1, "nothing.trace: nothing to compare: it allocates nothing");
        }
    }
    for (lines, message) in [
        ("alloc 1 5 0\nalloc 1 5 0\n", "standard input:2: allocation 1 is already live"),
        ("alloc 1 5 0\nconf nonsense:1\n", "standard input:2: allocator settings `nonsense:1`"),
    ] {
        run_with_input(&["replay", "--compare", "-"], lines.as_bytes()).fails(1, message);
        run_with_input(&["advise", "-"], lines.as_bytes()).fails(1, message);
    }
}
