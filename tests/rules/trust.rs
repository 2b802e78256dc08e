//! What `docs/SAFETY.md` says about the source must be true: the uses of `unsafe` in each crate, and the dependencies.

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

/// Compares the table of dependencies with the manifest of the workspace.
pub(crate) fn dependencies(file: &str, page: &str, manifest: &str) -> Vec<Finding> {
    let table = rows(page, "| dependency | of | why |");
    let listed: Vec<&str> = table.iter().map(|(_, cells)| cells[0].trim_matches('`')).collect();
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    let others = section.filter(|line| !line.contains("path = ") && !line.starts_with('#'));
    let names = others.filter_map(|line| line.split([' ', '=']).next());
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let finding = |what| Finding { file: file.to_owned(), line: 1, what };
    let missing = names.iter().filter(|name| !listed.contains(name));
    let missing = missing.map(|name| finding(format!("`{name}` is not in the table: say why it is needed")));
    let gone = listed.iter().filter(|name| !names.contains(name));
    let gone = gone.map(|name| finding(format!("`{name}` is in the table, but the workspace does not need it")));
    missing.chain(gone).collect()
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
    fn missing_and_superfluous_dependencies_are_found() {
        let page = "| dependency | of | why |\n|---|---|---|\n| `a` | x | y |\n| `old` | x | y |\n";
        let manifest = "[workspace.dependencies]\nours = { path = \"x\" }\na = \"1\"\nb.version = \"1\"\nc = \"2\"\n\n[x]\nd = \"1\"";
        let found = dependencies("f", page, manifest);
        let told: Vec<&str> = found.iter().filter_map(|finding| finding.what.split('`').nth(1)).collect();
        assert_eq!(told, ["b.version", "c", "old"]);
    }
}
