//! What `docs/SAFETY.md` says about the source must be true: the uses of `unsafe` in each crate, and the dependencies.

use std::collections::BTreeSet;

use super::source::{Finding, Source, has_word};

/// Returns the rows of the table with this header, split into cells, each with the number of its line.
fn rows<'a>(page: &'a str, header: &str) -> Vec<(usize, Vec<&'a str>)> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != header).skip(2);
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    rows.map(|(index, line)| (index + 1, line.trim_matches('|').split('|').map(str::trim).collect())).collect()
}

/// Compares the table of uses of `unsafe` with the sources of each crate. Comments and tests do not count.
pub(crate) fn unsafe_uses(file: &str, page: &str, crates: &[(String, Vec<Source>)]) -> Vec<Finding> {
    let rows = rows(page, "| crate | uses of `unsafe` | for |");
    let finding = |line, what| Finding { file: file.to_owned(), line, what };
    let mut findings = Vec::new();
    for (folder, sources) in crates {
        let lines = sources.iter().flat_map(|source| source.code_outside_tests());
        let uses = lines.filter(|(_, code)| has_word(code, "unsafe")).count();
        let row = rows.iter().find(|(_, cells)| cells[0] == format!("`{folder}`"));
        match row.map(|(line, cells)| (*line, cells[1].parse())) {
            Some((_, Ok(listed))) if uses == listed => {}
            Some((line, _)) => {
                let what =
                    format!("`{folder}` has {uses} lines with `unsafe`: avoid new ones, or justify and list them");
                findings.push(finding(line, what));
            }
            None if uses == 0 => {}
            None => findings.push(finding(1, format!("`{folder}` uses `unsafe` and is not in the table"))),
        }
    }
    findings
}

/// Compares the table of dependencies, each of which needs a reason, with these manifests. What any of them takes from
/// a folder is our own.
pub(crate) fn dependencies(file: &str, page: &str, manifests: &[String]) -> Vec<Finding> {
    let table = rows(page, "| dependency | of | why |");
    let listed: BTreeSet<&str> = table.iter().map(|(_, cells)| cells[0].trim_matches('`')).collect();
    let (mut names, mut own) = (BTreeSet::new(), BTreeSet::new());
    for (name, line) in manifests.iter().flat_map(|manifest| named(manifest)) {
        names.insert(name);
        if line.contains("path = ") {
            own.insert(name);
        }
    }
    let names: BTreeSet<&str> = names.difference(&own).copied().collect();
    let finding = |what| Finding { file: file.to_owned(), line: 1, what };
    let missing = names.difference(&listed);
    let missing = missing.map(|name| finding(format!("`{name}` is not in the table: say why it is needed")));
    let gone = listed.difference(&names);
    let gone = gone.map(|name| finding(format!("`{name}` is in the table, but no manifest needs it")));
    let vague = table.iter().filter(|(_, cells)| cells.get(2).is_none_or(|why| why.is_empty()));
    let vague = vague.map(|(_, cells)| finding(format!("{} is in the table without a reason", cells[0])));
    missing.chain(gone).chain(vague).collect()
}

/// Returns the names of the dependencies in a manifest, each with a line about it. A dependency may have a line in a
/// table of several, or a table of its own.
fn named(manifest: &str) -> Vec<(&str, &str)> {
    let (mut found, mut is_of_several, mut alone) = (Vec::new(), false, None);
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            is_of_several = table.ends_with("dependencies");
            alone = table.rsplit_once("dependencies.").map(|(_, name)| name);
        }
        let first = line.split([' ', '=', '.']).next().unwrap_or_default();
        let is_name = is_of_several && first.starts_with(|start: char| start.is_ascii_alphabetic());
        found.extend(alone.or(is_name.then_some(first)).map(|name| (name, line)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_count_of_unsafe_is_found() {
        let page = "| crate | uses of `unsafe` | for |\n|---|---|---|\n| `a` | 1 | x |\n| `b` | 2 | x |\n";
        let source = |text| vec![Source::new("a.rs", text)];
        let crates = [
            ("a".to_owned(), source("unsafe {} // unsafe\n#[cfg(test)]\nmod t { unsafe {} }")),
            ("b".to_owned(), source("unsafe {}")),
            ("c".to_owned(), source("unsafe {}")),
            ("d".to_owned(), source("")),
        ];
        let lines: Vec<usize> = unsafe_uses("f", page, &crates).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [4, 1]);
    }

    #[test]
    fn missing_superfluous_and_unexplained_dependencies_are_found() {
        let page = "| dependency | of | why |\n|---|---|---|\n| `a` | x | |\n| `old` | x | y |\n";
        let workspace =
            "[workspace.dependencies]\nours = { path = \"x\" }\na = \"1\"\nb.version = \"1\"\n\n[x]\nd = \"1\"";
        let member = "[target.'cfg(unix)'.dev-dependencies]\n# e\nours.workspace = true\nc.workspace = true\n\n\
                      [dependencies.also-ours]\npath = \"y\"\n\n[build-dependencies.z]\nversion = \"1\"";
        let found = dependencies("f", page, &[workspace, member].map(str::to_owned));
        let told: Vec<&str> = found.iter().filter_map(|finding| finding.what.split('`').nth(1)).collect();
        assert_eq!(told, ["b", "c", "z", "old", "a"]);
    }
}
