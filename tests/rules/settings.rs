//! Checks that the site's settings reference lists the keys that the code reads.

use super::source::{Finding, Source};

/// Returns the keys that the code reads: `("key", Field::…)` and `IgnoredKey::new("key", …)`, each at the start of a
/// line.
fn keys(sources: &[Source]) -> Vec<String> {
    let key = |line: &str| {
        let line = line.trim_start();
        let ignored = line.strip_prefix("IgnoredKey::new(\"").and_then(|rest| rest.split_once('"'));
        let field = line.strip_prefix("(\"").and_then(|rest| rest.split_once("\", Field::"));
        ignored.or(field).map(|(key, _)| key.to_owned())
    };
    sources.iter().flat_map(|source| &source.lines).filter_map(|line| key(line)).collect()
}

/// The keys that the page lists, each with its line: headings in code, and what begins a row of its tables in code.
/// Names in capitals are environment variables.
fn listed(page: &str) -> Vec<(usize, &str)> {
    let keys = page.lines().enumerate().filter_map(|(index, line)| {
        let key = line.strip_prefix("### `").or_else(|| line.strip_prefix("| `"))?;
        Some((index + 1, key.split_once('`')?.0))
    });
    keys.filter(|(_, key)| !key.starts_with(|first: char| first.is_ascii_uppercase())).collect()
}

/// Finds keys that the page lacks, lists twice, or lists although nothing reads them. Panics if hardly any keys are
/// found in the code, because the search is then wrong.
pub(crate) fn differences(file: &str, page: &str, sources: &[Source]) -> Vec<Finding> {
    let (keys, listed) = (keys(sources), listed(page));
    assert!(keys.len() > 20, "found only these keys in the code: {keys:?}");
    let at = |line, what| Finding { file: file.to_owned(), line, what };
    let is_listed = |key: &&String| listed.iter().any(|(_, other)| other == key);
    let missing = keys.iter().filter(|key| !is_listed(key));
    let missing = missing.map(|key| at(1, format!("does not list the setting `{key}`: describe it")));
    let unknown = listed.iter().filter(|(_, key)| !keys.iter().any(|other| other == key));
    let unknown = unknown.map(|(line, key)| at(*line, format!("no code reads the setting `{key}`: remove it")));
    let twice = listed.iter().enumerate().filter(|(n, (_, key))| listed[..*n].iter().any(|(_, other)| other == key));
    let twice = twice.map(|(_, (line, key))| at(*line, format!("lists the setting `{key}` twice: keep one")));
    missing.chain(unknown).chain(twice).collect()
}

#[test]
fn keys_are_found_in_code_and_on_the_page() {
    let code =
        "    (\"one\", Field::Number(&mut self.one)),\n    IgnoredKey::new(\"two\", |key, value| {,\n(\"no\", 1)";
    assert_eq!(keys(&[Source::new("a.rs", code)]), ["one", "two"]);
    let page = "`no`\n### `one`\n| key | values |\n|---|---|\n| `two` | `no` |\n| `TWO` | no |";
    assert_eq!(listed(page), [(2, "one"), (5, "two")]);
}
