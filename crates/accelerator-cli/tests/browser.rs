//! The page of `accel report` in a browser: on wide and narrow screens, no text overlaps or sticks out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at anything unexpected")]

#[path = "program/accel.rs"]
#[allow(dead_code, reason = "another target uses more of it")]
mod accel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use accel::{file, folder, run};
use accelerator_cli::trace::BUNDLED;
use accelerator_conformance::unavailable;
use accelerator_core::MemPoolId;
use accelerator_tracker::picture::{MapBlock, MapSegment, Marker, Moment, Profile, Sample, Span};
use accelerator_tracker::report;
use accelerator_tracker::snapshot::{BlockState, PoolKind};
use accelerator_tracker::tracker::MemoryUse;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const WIDTHS: [u32; 2] = [1280, 400];

fn main() {
    let mut trials: Vec<_> = BUNDLED
        .iter()
        .map(|trace| {
            trial(trace.name, || {
                let (input, page) = (file(&format!("{}.trace.zst", trace.name), trace.file), page(trace.name));
                let ended = run(&["report", input.to_str().unwrap(), "-o", page.to_str().unwrap()]);
                assert_eq!(ended.status, Some(0), "{}", ended.error);
                page
            })
        })
        .collect();
    for (name, input) in [
        ("pytorch_snapshot", "tiny_transformer.snapshot.pickle"),
        ("pytorch_tracker", "tiny_transformer.tracker.pickle"),
    ] {
        trials.push(trial(name, move || {
            let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pytorch").join(input);
            let page = page(name);
            let ended = run(&["report", input.to_str().unwrap(), "-o", page.to_str().unwrap()]);
            assert_eq!(ended.status, Some(0), "{}", ended.error);
            page
        }));
    }
    for (name, count) in [("nothing", 0), ("one_call", 1), ("ten_calls", 10), ("hundred_thousand_calls", 100_000)] {
        trials.push(trial(name, move || {
            let page = page(name);
            report::save(&hostile(count), &page).unwrap();
            page
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn page(name: &str) -> PathBuf {
    folder("browser").join(name).with_extension("html")
}

/// Returns a trial that checks a page at all widths.
fn trial(name: &str, page: impl Fn() -> PathBuf + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(browser) = browser() else {
            return Ok(Completion::ignored_with(unavailable("chromium", "no `chromium` is in PATH")?));
        };
        let page = page();
        for width in WIDTHS {
            check(&browser, &page, width)?;
        }
        Ok(Completion::Completed)
    })
}

fn browser() -> Option<PathBuf> {
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// Opens the page in a frame of this width, since windows cannot be that narrow, and collects problems.
fn check(browser: &Path, page: &Path, width: u32) -> Result<(), Failed> {
    let text = fs::read_to_string(page).unwrap();
    let errors = "<head><script>window.problems = []; \
                  window.onerror = (error) => window.problems.push(String(error));</script>";
    let checked = page.with_extension(format!("{width}.checked.html"));
    let check = format!("<script>{}</script></body>", include_str!("browser/check.js"));
    fs::write(&checked, text.replacen("<head>", errors, 1).replace("</body>", &check)).unwrap();
    let around = page.with_extension(format!("{width}.frame.html"));
    let frame = format!(
        "<!DOCTYPE html><pre id=\"told\"></pre><script>addEventListener('message', (message) => {{\
         document.getElementById('told').textContent = JSON.stringify(message.data); }});</script>\
         <iframe src=\"{}\" style=\"border:0;width:{width}px;height:900px\"></iframe>",
        checked.file_name().unwrap().to_str().unwrap()
    );
    fs::write(&around, frame).unwrap();
    let user_data = tempfile::tempdir().unwrap();
    // The browser itself must not use the network.
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1400,1000", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", user_data.path().display()))
        .arg(format!("file://{}", around.display()))
        .output()?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = dom.split_once("<pre id=\"told\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let told = told.map(|(told, _)| told).filter(|told| !told.is_empty());
    match told {
        Some(told) if told.contains("\"problems\":[]") && told.contains(&format!("\"width\":{width},")) => Ok(()),
        Some(told) => Err(format!("{} at {width}: {told}", page.display()).into()),
        None => Err(format!("{} at {width}: no answer: {dom:.300}", page.display()).into()),
    }
}

/// Long names, names in other scripts, and names that would break a page.
fn hostile(count: usize) -> Profile {
    let names =
        ["</script><b>x", "数据并行训练步骤的梯度聚合运算符名称非常长", "a.very.long.module.path.".repeat(20).leak()];
    let value = |at: usize| ((at * 7_919) % 1_009) as u64 * 7_654_321;
    let sample = |at: usize| Sample {
        name: format!("{}{}", names[at % 3], at % 50).into(),
        time_us: 1 + 37 * at as i64,
        memory: MemoryUse { allocated: value(at), active: value(at) + 512, reserved: 8 << 30 },
    };
    let block = |size: u64, scope: &str| MapBlock {
        size,
        state: [BlockState::Allocated, BlockState::Inactive, BlockState::PendingFree][size as usize % 3],
        scope: scope.into(),
    };
    let segment = |number: usize| MapSegment {
        mem_pool: MemPoolId::new(0, number as u64 % 3),
        pool: if number.is_multiple_of(2) { PoolKind::Large } else { PoolKind::Small },
        stream: number as u64 % 4,
        address: number as u64,
        is_alias: false,
        is_paused: number.is_multiple_of(3) && number > 20,
        blocks: (1..200).map(|size| block(size * (1 + number as u64), names[size as usize % 3])).collect(),
    };
    Profile {
        title: names.concat(),
        facts: names.map(|name| (name.to_owned(), name.to_owned())).into(),
        capacity: Some(9 << 30),
        samples: (0..count).map(sample).collect(),
        markers: (0..count / 3).map(|at| Marker { name: names[at % 3].into(), call: at * 3 }).collect(),
        moments: vec![Moment {
            name: names[2].to_owned(),
            call: 0,
            segments: (0..count.min(30)).map(segment).collect(),
        }],
        pool_names: (1..).zip(names).map(|(pool, name)| (MemPoolId::new(0, pool), name.into())).collect(),
        spans: (0..count).map(|at| Span { bytes: value(at), start: Some(at), end: Some(at + at % 613) }).collect(),
        statistics: vec![(names[2].to_owned(), i64::MIN), ("x.bytes".to_owned(), i64::MAX)],
        ..Profile::default()
    }
}
