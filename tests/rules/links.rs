//! Links between documents: each leads to a file of the repository and, with an anchor, to a heading of it.

use super::markdown::{anchor, line_of, without_code};
use super::source::Finding;

/// Finds links that lead nowhere. `read` returns the text of a file, an empty string for a folder, or `None` if the
/// path does not exist.
pub(crate) fn broken(file: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let text = without_code(text);
    let mut findings = Vec::new();
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split([')', ' ', '\n']).next().unwrap_or_default();
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let is_item = path.contains("::") || !target.contains(['/', '.', '#']); // rustdoc finds these
        if is_item || target.contains("://") {
            continue;
        }
        let place = if path.is_empty() { file.to_owned() } else { resolved(file, path) };
        let what = match read(&place) {
            None => format!("{place} does not exist: correct the link"),
            Some(linked) if !heading.is_empty() && !anchors(&linked).any(|anchor| anchor == heading) => {
                format!("{place} has no heading `{heading}`: correct the link, or the heading")
            }
            Some(_) => continue,
        };
        findings.push(Finding { file: file.to_owned(), line: line_of(&text, at), what });
    }
    findings
}

/// Converts a path relative to the folder of a file into a path relative to the root.
fn resolved(file: &str, path: &str) -> String {
    let mut parts: Vec<_> = file.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings: Vec<_> = without_code(text).lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    headings.into_iter()
}

#[test]
fn links_to_missing_files_and_headings_are_found() {
    let read = |path: &str| match path {
        "docs/a.md" => Some("# A\n```text\n# no heading\n```\n## `b`, and c".to_owned()),
        "docs" => Some(String::new()),
        _ => None,
    };
    let right = "[a](a.md) [b](a.md#b-and-c) [docs](../docs) [d](#a) [e](https://e/f.md) [g](g::H) [h](h)\n```\n[i](i.md)\n```\n\
                 [j](../docs/a.md#a\n\"title\")";
    assert_eq!(broken("docs/a.md", right, read), []);
    let wrong = "[a](b.md)\n[b](a.md#b)\n[c](docs/a.md) [d](#d)\n[e](a.md#no-heading)";
    let lines: Vec<_> = broken("docs/a.md", wrong, read).iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [1, 2, 3, 3, 4]);
}
