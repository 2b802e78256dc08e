//! Checks that the example uses all names in the tables of the facade's README.

use super::source::{Finding, Source, has_word};

/// The names in the last column of the tables, each with its line: those that are links and, where the column names
/// another crate, the crate and its names.
fn named(readme: &str) -> Vec<(usize, String)> {
    let rows = readme.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let names = rows.flat_map(|(index, row)| {
        let here = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        let of_other_crate = here.contains("the crate `");
        let (start, end) = if of_other_crate { ("`", "`") } else { ("[`", "`]") };
        let mut names = Vec::new();
        let mut rest = here;
        while let Some((name, behind)) = rest.split_once(start).and_then(|(_, rest)| rest.split_once(end)) {
            names.push((index + 1, name.trim_end_matches("()").replace('-', "_")));
            rest = behind;
        }
        names
    });
    names.collect()
}

/// Returns whether the file uses a name. Both parts of a name such as `Stream::query` must appear.
fn uses(source: &Source, name: &str) -> bool {
    let has = |part: &str| source.code.iter().any(|line| has_word(line, part));
    name.rsplit("::").take(2).all(has)
}

/// Names of the tables that no file of the example uses.
fn missing(file: &str, readme: &str, example: &[Source]) -> Vec<Finding> {
    let missing = named(readme).into_iter().filter(|(_, name)| !example.iter().any(|source| uses(source, name)));
    let finding = |(line, name)| Finding {
        file: file.to_owned(),
        line,
        what: format!(
            "no file of the example `every_name` uses `{name}`: call it in one that names its type or module"
        ),
    };
    missing.map(finding).collect()
}

/// The same. Fails where the tables name hardly anything: they were not found.
pub(crate) fn unused(file: &str, readme: &str, example: &[Source]) -> Vec<Finding> {
    let names = named(readme).len();
    assert!(names > 80, "the tables of {file} have only {names} names");
    missing(file, readme, example)
}

#[test]
fn names_are_found_behind_the_last_bar() {
    let rows = "text [`no`]\n| `a` | b |\n|---|---|\n\
                | [`left`] | [`one`], with `.filter(\\|_\\| x)` [`memory::two`] and [`three()`] |\n\
                | `c` | `d::e` of the crate `f-g` |";
    let expected = [(4, "one"), (4, "memory::two"), (4, "three"), (5, "d::e"), (5, "f_g")];
    assert_eq!(named(rows), expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn unused_names_are_found() {
    let rows = "| a | [`one`], [`Stream::query`] |\n| b | [`Event::query`] |\n| c | `d::e` of the crate `f-g` |";
    let lines = |text: &str| -> Vec<usize> {
        let streams = Source::new("streams.rs", "fn f(stream: &Stream) { stream.query(); one() }");
        let found = missing("README.md", rows, &[streams, Source::new("events.rs", text)]);
        found.iter().map(|finding| finding.line).collect()
    };
    assert_eq!(lines("Event::query(&event); f_g::d::e()"), []);
    assert_eq!(lines("Event::new(); // query\n f_g::d::e()"), [2], "a query, but of a stream");
    assert_eq!(lines("Event::query(&event); d::e()"), [3], "another crate's");
    assert_eq!(lines("Event::query(&event); f_g::d()"), [3]);
}
