//! Rules about the workspace: where files are, and which package depends on which.

use super::source::Finding;

/// Everything in the top folder except dotfiles and build output.
const TOP_LEVEL: [&str; 16] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "backends",
    "benches",
    "book.toml",
    "crates",
    "deny.toml",
    "docs",
    "rust-toolchain.toml",
    "tests",
];

/// The packages of ours that each package may depend on outside tests. A package that is not listed may depend on any.
const MAY_NEED: [(&str, &[&str]); 6] = [
    ("crates/accelerator-core", &[]),
    ("crates/accelerator-conformance", &["accelerator-core"]),
    ("crates/accelerator-tracker", &["accelerator-core", "accelerator"]),
    (
        "crates/accelerator",
        &["accelerator-core", "accelerator-host", "accelerator-cuda", "accelerator-xpu", "accelerator-opencl"],
    ),
    ("crates/level-zero-sys", &[]),
    ("backends", &["accelerator-core", "level-zero-sys"]),
];

pub(crate) fn strangers(entries: &[String]) -> Vec<Finding> {
    let strange = entries
        .iter()
        .filter(|entry| !entry.starts_with('.') && *entry != "target" && !TOP_LEVEL.contains(&entry.as_str()));
    strange
        .map(|entry| Finding {
            file: entry.clone(),
            line: 1,
            what: "not expected at the top level: put it into a package or into docs".to_owned(),
        })
        .collect()
}

/// Finds dependencies of a package on packages that it must not use. `folder` contains its manifest.
pub(crate) fn needs(folder: &str, manifest: &str) -> Vec<Finding> {
    let place =
        |listed: &&(&str, &[&str])| folder == listed.0 || (listed.0 == "backends" && folder.starts_with("backends/"));
    let Some((_, allowed)) = MAY_NEED.iter().find(place) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        let counts = section.contains("dependencies") && !section.contains("dev-dependencies");
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let ours = name.starts_with("accelerator") || name == "level-zero-sys";
        if counts && ours && !allowed.contains(&name) {
            let what = format!("depends on `{name}`, but may depend only on {allowed:?}: data flows one way");
            findings.push(Finding { file: format!("{folder}/Cargo.toml"), line: index + 1, what });
        }
    }
    findings
}

/// Finds packages that do not use the lints of the workspace.
pub(crate) fn own_lints(folder: &str, manifest: &str) -> Vec<Finding> {
    let file = format!("{folder}/Cargo.toml");
    let what = "does not use the lints of the workspace: add `[lints]` with `workspace = true`".to_owned();
    let takes_them = manifest.contains("\n[lints]\nworkspace = true\n");
    if takes_them { Vec::new() } else { vec![Finding { file, line: 1, what }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_entries_are_found() {
        let entries = ["Cargo.toml", ".ci", "target", "notes.txt", "src"].map(str::to_owned);
        let found: Vec<String> = strangers(&entries).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["notes.txt", "src"]);
    }

    #[test]
    fn needs_against_the_flow_are_found() {
        let manifest = "[package]\nname = \"accelerator-host\"\n[dependencies]\naccelerator-core.workspace = true\n\
                        accelerator = { path = \"x\" }\n[dev-dependencies]\naccelerator-conformance.workspace = true";
        let lines: Vec<usize> = needs("backends/host", manifest).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5]);
        assert_eq!(needs("crates/accelerator-core", manifest).len(), 2);
        assert_eq!(needs("crates/accelerator-cli", manifest), []);
    }

    #[test]
    fn a_package_with_lints_of_its_own_is_found() {
        let with = |lints: &str| own_lints("a", &format!("[package]\nname = \"a\"\n{lints}")).len();
        assert_eq!(with("\n[lints]\nworkspace = true\n"), 0);
        assert_eq!((with(""), with("\n[lints.clippy]\npanic = \"allow\"\n")), (1, 1));
    }
}
