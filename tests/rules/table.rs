//! Checks that the example uses all names in the tables of the facade's README.

use super::source::{Finding, Source, words};

/// Returns the names that the tables link to in their last column, each with its line. Of a path such as
/// `memory::statistics`, it returns the last part.
fn linked(readme: &str) -> Vec<(usize, &str)> {
    let rows = readme.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let links = rows.flat_map(|(index, row)| {
        let here = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        here.split("[`").skip(1).filter_map(move |rest| Some((index + 1, rest.split_once("`]")?.0)))
    });
    links.map(|(line, path)| (line, path.trim_end_matches("()").rsplit("::").next().unwrap_or(path))).collect()
}

/// Finds names in the tables that the example does not use. Panics if hardly any names are found, because the search is
/// then wrong.
pub(crate) fn unused(file: &str, readme: &str, example: &[Source]) -> Vec<Finding> {
    let linked = linked(readme);
    assert!(linked.len() > 80, "the tables of {file} have only {} names", linked.len());
    let code = || example.iter().flat_map(|source| &source.code);
    let is_used = |name: &str| code().any(|line| words(line).any(|(_, word)| word == name));
    let missing = linked.into_iter().filter(|(_, name)| !is_used(name));
    let finding = |(line, name)| Finding {
        file: file.to_owned(),
        line,
        what: format!("`{name}` is not in the example `every_name`: call it there"),
    };
    missing.map(finding).collect()
}

#[test]
fn names_are_found_behind_the_last_bar() {
    let row = "text [`no`]\n| `a` | b |\n|---|---|\n| [`left`] | [`one`], with `.filter(\\|_\\| x)` [`memory::two`] and [`three()`] |";
    assert_eq!(linked(row), [(4, "one"), (4, "two"), (4, "three")]);
}
