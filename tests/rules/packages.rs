//! Rules about the workspace: where files are, and which package depends on which.

use super::source::Finding;

/// Everything in the top folder except dotfiles and build output.
const TOP_LEVEL: [&str; 17] = [
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
    "python",
    "rust-toolchain.toml",
    "tests",
];

/// The packages of ours that each package may depend on outside tests. A package that is not listed may depend on any.
const MAY_NEED: [(&str, &[&str]); 7] = [
    ("crates/accelerator-core", &[]),
    ("crates/accelerator-conformance", &["accelerator-core"]),
    ("crates/accelerator-tracker", &["accelerator-core", "accelerator"]),
    (
        "crates/accelerator",
        &[
            "accelerator-core",
            "accelerator-host",
            "accelerator-cuda",
            "accelerator-xpu",
            "accelerator-opencl",
            "accelerator-vulkan",
        ],
    ),
    ("crates/accelerator-torch", &["accelerator-core", "accelerator-cuda", "accelerator-host"]),
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
            what: "not expected at the top level: move it into a package or into docs".to_owned(),
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
            let what = format!("depends on `{name}`, but may depend only on {allowed:?}: remove the dependency");
            findings.push(Finding { file: format!("{folder}/Cargo.toml"), line: index + 1, what });
        }
    }
    findings
}

/// Finds packages that do not use the lints of the workspace.
pub(crate) fn own_lints(folder: &str, manifest: &str) -> Vec<Finding> {
    let file = format!("{folder}/Cargo.toml");
    let what = "does not inherit the workspace's lints: add `[lints]` with `workspace = true`".to_owned();
    let takes_them = manifest.contains("\n[lints]\nworkspace = true\n");
    let is_own_workspace = manifest.lines().any(|line| line == "[workspace]");
    if takes_them || is_own_workspace { Vec::new() } else { vec![Finding { file, line: 1, what }] }
}

/// A published package for which docs.rs does not know what to build.
pub(crate) fn undocumented(folder: &str, manifest: &str) -> Vec<Finding> {
    let is_published = ["crates/", "backends/"].iter().any(|published| folder.starts_with(published));
    let section = manifest.split_once("\n[package.metadata.docs.rs]\n").map(|(_, rest)| rest);
    let keys = section.map(|rest| rest.split("\n[").next().unwrap_or_default());
    let what = match keys {
        None => "has no `[package.metadata.docs.rs]`: add it, with `targets`",
        Some(keys) if !keys.lines().any(|line| line.starts_with("targets = ")) => {
            "`[package.metadata.docs.rs]` has no `targets`: list those that the package supports"
        }
        Some(_) => return Vec::new(),
    };
    let finding = Finding { file: format!("{folder}/Cargo.toml"), line: 1, what: what.to_owned() };
    if is_published { vec![finding] } else { Vec::new() }
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

    #[test]
    fn a_package_without_metadata_for_docs_rs_is_found() {
        let with = |folder: &str, metadata: &str| {
            undocumented(folder, &format!("[package]\nname = \"a\"\n{metadata}\n[lints]\nworkspace = true\n")).len()
        };
        let [complete, partial] = ["targets = [\"a\"]\n", "all-features = true\n"]
            .map(|keys| format!("\n[package.metadata.docs.rs]\n{keys}"));
        assert_eq!((with("crates/a", &complete), with("backends/a", &complete)), (0, 0));
        assert_eq!((with("crates/a", &partial), with("backends/a", "")), (1, 1));
        assert_eq!(with("tests", ""), 0);
    }
}
