//! Checks the source text against rules of the workspace that no compiler enforces. Each finding says where the problem
//! is and what to do about it.
#![allow(clippy::unwrap_used, clippy::panic)] // also in helpers, which clippy does not take for tests

mod rules;

use rules::source::{Finding, files, report, root, sources};
use rules::{figures, layers, links, packages, settings, table, text, trust, uses};

const CORE: &str = "crates/accelerator-core/src";
const FACADE: &str = "crates/accelerator/src";
const TRACKER: &str = "crates/accelerator-tracker/src";

/// Each backend: its folder, the number of lines of code that is too many, and the files that do not count because they
/// do more than call the driver. These contain kernels and their arguments, the separation of conflicting work, objects
/// of other libraries, the search in a captured graph, and the devices with their properties, including free memory.
/// The host has no driver that maps or exports memory, so it does that itself. Level Zero's drivers must be tested to
/// find out what they can map.
const BACKENDS: [(&str, usize, &[&str]); 5] = [
    ("backends/cuda", 960, &["devices.rs", "marks.rs", "native.rs", "view.rs"]),
    (
        "backends/host",
        640,
        &["access.rs", "foreign.rs", "interprocess.rs", "launch.rs", "private.rs", "ranges.rs", "virtual_memory.rs"],
    ),
    ("backends/opencl", 1010, &["devices.rs", "kernel_argument.rs", "launch.rs", "native.rs", "ocl.rs"]),
    (
        "backends/vulkan",
        1800,
        &["devices.rs", "kernel.rs", "native.rs", "offer.rs", "pipeline.rs", "queues.rs", "usage.rs"],
    ),
    ("backends/xpu", 1380, &["devices.rs", "kernel.rs", "native.rs", "twice.rs", "usage.rs"]),
];

#[test]
fn data_flows_one_way_through_the_core() {
    report(&uses::upward_uses(&sources(CORE)));
}

#[test]
fn packages_need_only_what_lies_below_them() {
    report(&in_each_package(packages::needs));
}

#[test]
fn packages_have_the_lints_of_the_workspace() {
    report(&in_each_package(packages::own_lints));
}

#[test]
fn published_packages_say_what_docs_rs_builds() {
    report(&in_each_package(packages::undocumented));
}

/// What a rule finds, given each package's folder and manifest.
fn in_each_package(rule: impl Fn(&str, &str) -> Vec<Finding>) -> Vec<Finding> {
    let manifests = files("").into_iter().filter(|file| file.ends_with("/Cargo.toml"));
    let found = manifests.flat_map(|file| {
        let manifest = std::fs::read_to_string(root().join(&file)).unwrap();
        rule(file.trim_end_matches("/Cargo.toml"), &manifest)
    });
    found.collect()
}

#[test]
fn the_allocators_name_no_backend() {
    for folder in ["alloc", "pinned"] {
        report(&layers::backends_named(&sources(&format!("{CORE}/{folder}"))));
    }
}

#[test]
fn unsafe_stays_where_it_is_expected() {
    report(&layers::unsafe_where_not_listed(&sources(CORE)));
}

#[test]
fn the_page_on_safety_is_true() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let page = read("docs/SAFETY.md");
    let manifests: Vec<_> = files("").into_iter().filter(|file| file.ends_with("Cargo.toml")).collect();
    let folders = manifests.iter().map(|file| file.trim_end_matches("Cargo.toml").trim_end_matches('/'));
    let places = ["crates/", "backends/", "tests/drivers/engine"];
    let chosen = folders.filter(|folder| places.iter().any(|place| folder.starts_with(place)));
    let crates: Vec<_> = chosen.map(|folder| (folder.to_owned(), sources(&format!("{folder}/src")))).collect();
    let mut findings = trust::unsafe_uses("docs/SAFETY.md", &page, &crates);
    let manifests: Vec<_> = manifests.iter().map(|file| read(file)).collect();
    findings.extend(trust::dependencies("docs/SAFETY.md", &page, &manifests));
    report(&findings);
}

#[test]
fn files_are_short() {
    report(&text::too_long(&sources("")));
}

#[test]
fn lines_of_prose_are_not_too_wide() {
    let data = ["tests/data/", "tests/fuzz/corpus/", "tests/fuzz/findings/"];
    let written = files("").into_iter().filter(|file| !data.iter().any(|folder| file.starts_with(folder)));
    let found = written.flat_map(|file| match std::fs::read_to_string(root().join(&file)) {
        Ok(text) => text::too_wide(&file, &text),
        Err(_) => Vec::new(), // not text
    });
    report(&found.collect::<Vec<_>>());
}

#[test]
fn macros_of_libraries_return_errors() {
    let backends = BACKENDS.map(|(folder, ..)| format!("{folder}/src"));
    let mut libraries: Vec<_> = backends.iter().flat_map(|folder| sources(folder)).collect();
    libraries.extend([CORE, FACADE, TRACKER].into_iter().flat_map(sources));
    libraries.retain(|source| !source.file.ends_with("/tests.rs")); // modules of tests alone
    report(&text::panics_in_macros(&libraries));
}

#[test]
fn a_backend_is_little_code() {
    for (folder, too_many, beyond) in BACKENDS {
        report(&text::too_much(folder, &sources(&format!("{folder}/src")), too_many, beyond));
    }
}

#[test]
fn every_backend_is_listed() {
    assert_eq!(backends(), BACKENDS.map(|(folder, ..)| folder.trim_start_matches("backends/")));
}

#[test]
fn the_facade_has_one_switch_per_backend() {
    report(&text::feature_switches(&sources(FACADE), &backends(), FACADE));
}

#[test]
fn an_example_uses_every_name_of_the_facades_tables() {
    let file = "crates/accelerator/README.md";
    let readme = std::fs::read_to_string(root().join(file)).unwrap();
    report(&table::unused(file, &readme, &sources("crates/accelerator/examples/every_name")));
}

#[test]
fn the_site_lists_every_setting() {
    let file = "docs/guide/settings.md";
    let page = std::fs::read_to_string(root().join(file)).unwrap();
    report(&settings::differences(file, &page, &sources(&format!("{CORE}/alloc/settings"))));
}

/// Returns the names of the folders below `backends`.
fn backends() -> Vec<String> {
    let manifests = files("backends").into_iter().filter(|file| file.ends_with("/Cargo.toml"));
    manifests.filter_map(|file| file.split('/').nth(1).map(str::to_owned)).collect()
}

#[test]
fn no_text_holds_a_path_of_one_machine() {
    let mut findings = Vec::new();
    for file in files("") {
        if let Ok(text) = std::fs::read_to_string(root().join(&file)) {
            findings.extend(text::machine_paths(&file, &text));
        }
    }
    report(&findings);
}

#[test]
fn documents_quote_measured_figures() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let (counts, measured) = (read(figures::COUNTS), read(figures::MEASURED));
    let counts = figures::counts(&counts);
    assert!(counts.len() > 10, "{} has only {} counts", figures::COUNTS, counts.len());
    let mut findings = Vec::new();
    for file in files("").iter().filter(|file| file.ends_with(".md") && *file != figures::MEASURED) {
        let text = read(file);
        findings.extend(figures::wrong_instructions(file, &text, &counts));
        findings.extend(figures::wrong_quotes(file, &text, &measured));
    }
    report(&findings);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let read = |path: &str| {
        let path = root().join(path);
        let bytes = if path.is_dir() { Vec::new() } else { std::fs::read(path).ok()? };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let documents: Vec<_> = files("").into_iter().filter(|file| file.ends_with(".md")).collect();
    let found = documents.iter().flat_map(|file| links::broken(file, &read(file).unwrap(), read));
    report(&found.collect::<Vec<_>>());
}

#[test]
fn the_top_level_is_as_expected() {
    let entries = std::fs::read_dir(root()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(names.contains(&"Cargo.toml".to_owned()), "not the root of the workspace: {names:?}");
    report(&packages::strangers(&names));
}
