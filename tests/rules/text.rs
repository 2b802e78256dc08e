//! Rules about single files: their length, calls that library code must not make, and text that must not occur.

use super::source::{Finding, Source, words};

pub(crate) const LONGEST_FILE: usize = 400;

const WIDEST_LINE: usize = 120;

/// As long as the headers make them: bindgen's output, which nobody edits.
const GENERATED: [&str; 3] =
    ["crates/level-zero-sys/src/bindings.rs", "crates/level-zero-sys/src/ddi.rs", "crates/level-zero-sys/src/lists.rs"];

/// Finds calls in macros of library code that can panic. Clippy finds all others.
pub(crate) fn panics_in_macros(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (line, code) in source.code_of_macros() {
            for call in [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!("] {
                if code.contains(call) {
                    let what = format!("`{call}` in library code: return an error that says what to do");
                    findings.push(source.finding(line, what));
                }
            }
        }
    }
    findings
}

pub(crate) fn too_long(sources: &[Source]) -> Vec<Finding> {
    let written = sources.iter().filter(|source| !GENERATED.contains(&source.file.as_str()));
    let long = written.filter(|source| source.lines.len() > LONGEST_FILE);
    long.map(|source| {
        let what = format!("{} lines, but at most {LONGEST_FILE} are allowed: split the file", source.lines.len());
        source.finding(source.lines.len(), what)
    })
    .collect()
}

/// Lines of comments and of documents that are too wide. Tables and code in them may be wide, and so may web addresses
/// that no line break can shorten.
pub(crate) fn too_wide(file: &str, text: &str) -> Vec<Finding> {
    if GENERATED.contains(&file) {
        return Vec::new();
    }
    let is_prose = prose(file, text);
    let (mut findings, mut in_code) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate().filter(|(index, _)| is_prose[*index]) {
        let inner = line.trim_start().trim_start_matches(['/', '!', '#', '*']).trim_start();
        let is_fence = inner.starts_with("```");
        in_code ^= is_fence;
        let width = line.chars().count();
        if width > WIDEST_LINE && !in_code && !is_fence && !inner.starts_with('|') && !address_at_the_edge(line) {
            let what = format!("{width} columns: break the line after {WIDEST_LINE} at most");
            findings.push(Finding { file: file.to_owned(), line: index + 1, what });
        }
    }
    findings
}

/// Whether each line is one of a document, or has a comment.
fn prose(file: &str, text: &str) -> Vec<bool> {
    let starts_with = |line: &str, marks: &[&str]| marks.iter().any(|mark| line.trim_start().starts_with(mark));
    let extension =
        file.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, extension)| extension);
    match extension {
        "md" => vec![true; text.lines().count()],
        "rs" => Source::new(file, text).has_comment,
        "c" | "cl" | "cpp" | "css" | "h" | "js" => {
            text.lines().map(|line| starts_with(line, &["//", "/*", "*"])).collect()
        }
        "py" => {
            let mut in_docstring = false;
            let is_prose = text.lines().map(|line| {
                let was_in_docstring = in_docstring;
                in_docstring ^= line.matches("\"\"\"").count() % 2 == 1;
                was_in_docstring || starts_with(line, &["#", "\"\"\""])
            });
            is_prose.collect()
        }
        _ => text.lines().map(|line| starts_with(line, &["#"])).collect(),
    }
}

/// Whether the word that crosses the widest column is a web address.
fn address_at_the_edge(line: &str) -> bool {
    let edge = line.char_indices().nth(WIDEST_LINE).map_or(line.len(), |(at, _)| at);
    let start = line[..edge].rfind(char::is_whitespace).map_or(0, |at| at + 1);
    line[start..].split_whitespace().next().is_some_and(|word| word.contains("://"))
}

/// A backend with too much code. `beyond`: files that do not count, each of which must exist.
pub(crate) fn too_much(folder: &str, sources: &[Source], too_many: usize, beyond: &[&str]) -> Vec<Finding> {
    let name = |source: &Source| source.file.rsplit('/').next().unwrap_or_default().to_owned();
    let at = |what| Finding { file: folder.to_owned(), line: 1, what };
    let missing = beyond.iter().filter(|file| !sources.iter().any(|source| name(source) == **file));
    let mut findings: Vec<_> = missing.map(|file| at(format!("has no {file}: remove it from the list"))).collect();
    let counts = sources.iter().map(|source| (name(source), code_lines(source)));
    let counts: Vec<_> = counts.filter(|(file, _)| !beyond.contains(&file.as_str())).collect();
    let lines: usize = counts.iter().map(|(_, lines)| lines).sum();
    if lines == 0 || lines >= too_many {
        findings.push(at(format!(
            "{lines} lines of code without blank lines, comments and tests, but there must be fewer than {too_many}: \
             move code that other backends could share into the core: {counts:?}"
        )));
    }
    findings
}

/// Returns the number of lines that are not blank, comments or tests.
fn code_lines(source: &Source) -> usize {
    source.code_outside_tests().filter(|(_, code)| !code.trim().is_empty()).count()
}

/// Returns the places where the source checks for a feature: its name, file and line.
pub(crate) fn features_asked(sources: &[Source]) -> Vec<(String, String, usize)> {
    let mut found = Vec::new();
    for source in sources {
        for (index, code) in source.code.iter().enumerate() {
            for (end, _) in words(code).filter(|(_, word)| *word == "feature") {
                let column = code[..end].chars().count();
                let raw: String = source.lines[index].chars().skip(column).collect();
                // `feature = $feature` in a macro does not count: the invocation of the macro contains the name.
                let value = raw.trim_start().strip_prefix('=').map(str::trim_start);
                let Some(value) = value.and_then(|value| value.strip_prefix('"')) else { continue };
                let name = value.split('"').next().unwrap_or_default();
                found.push((name.to_owned(), source.file.clone(), index + 1));
            }
        }
    }
    found
}

/// Finds backends that are not enabled by exactly one `cfg` of the facade, and `cfg`s outside the one file for them.
pub(crate) fn feature_switches(sources: &[Source], backends: &[String], facade: &str) -> Vec<Finding> {
    let asked = features_asked(sources);
    let mut findings = Vec::new();
    let at = |file: &str, line, what: String| Finding { file: file.to_owned(), line, what };
    for backend in backends {
        let places: Vec<_> = asked.iter().filter(|(name, ..)| backend_of(name) == backend).collect();
        match places.as_slice() {
            [] => findings.push(at(facade, 1, format!("no `cfg(feature = \"{backend}\")`: add one for the backend"))),
            [_] => {}
            [_, more @ ..] => findings.extend(more.iter().map(|(_, file, line)| {
                at(file, *line, format!("feature `{backend}` is tested more than once: keep one `cfg` per backend"))
            })),
        }
    }
    for (name, file, line) in &asked {
        if !backends.iter().any(|backend| backend_of(name) == backend) {
            findings.push(at(
                file,
                *line,
                format!("feature `{name}` belongs to no backend: remove it, since features only add backends"),
            ));
        }
        if *file != asked[0].1 {
            let what = format!("a `cfg` outside {}: keep all of them in one file", asked[0].1);
            findings.push(at(file, *line, what));
        }
    }
    findings
}

/// Returns the backend that a feature adds. A feature that ends in `-without-version` lets the program choose the
/// version of the driver's bindings.
fn backend_of(feature: &str) -> &str {
    feature.trim_end_matches("-without-version")
}

/// Finds absolute paths that exist only on one machine.
pub(crate) fn machine_paths(file: &str, text: &str) -> Vec<Finding> {
    // Concatenated here, so that this file does not contain them.
    let roots = ["home", "root", "work", "tmp"].map(|name| format!("/{name}/"));
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for path in &roots {
            let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~})>*".contains(c));
            if line.match_indices(path.as_str()).any(|(at, _)| starts(at)) {
                let what = format!("`{path}` is a path of one machine: read it from the environment, or leave it out");
                findings.push(Finding { file: file.to_owned(), line: index + 1, what });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn panics_are_found_in_macros_outside_tests() {
        let text = "a.unwrap();\nmacro_rules! b {\n    ($c:expr) => {{\n        // a.unwrap()\n        $c.unwrap();\n        \
                    panic!(\"d\"); todo!();\n        $c.expect(\"e\")\n    }};\n}\nunimplemented!()\n\
                    macro_rules! f { () => { unimplemented!() } }\n\
                    #[cfg(test)]\nmod tests {\n    macro_rules! g { () => { h.unwrap() } }\n}";
        assert_eq!(lines(&panics_in_macros(&[Source::new("src/a.rs", text)])), [5, 6, 6, 7, 11]);
    }

    #[test]
    fn long_files_are_found() {
        let text = "a\n".repeat(LONGEST_FILE);
        assert_eq!(too_long(&[Source::new("a.rs", &text)]), []);
        assert_eq!(too_long(&[Source::new("a.rs", &(text.clone() + "b"))]).len(), 1);
        assert_eq!(too_long(&[Source::new(GENERATED[0], &(text + "b"))]), []);
    }

    #[test]
    fn wide_lines_of_prose_are_found() {
        let wide = "word ".repeat(24) + "words";
        let found = |file: &str, text: &str| lines(&too_wide(file, &text.replace("WIDE", &wide)));
        assert_eq!(lines(&too_wide("a.md", &wide[..120])), []);
        assert_eq!(lines(&too_wide("a.md", &format!("é{}", &wide[..119]))), [], "columns, not bytes");
        assert_eq!(found("a.md", "WIDE\n| WIDE |\n```text\nWIDE\n```\n# WIDE\n"), [1, 6]);
        let address = format!("{}https://example.org/a {wide}", "word ".repeat(22));
        assert_eq!(lines(&too_wide("a.md", &address)), [], "no line break shortens it");
        assert_eq!(found("a.md", "https://example.org/a WIDE"), [1]);

        let rust = "//! WIDE\nlet a = \"// WIDE\";\n/// ```\n/// WIDE\n/// ```\nlet b = 1; // WIDE\n/* a\nWIDE */\n\
                    let c = \"\n// WIDE\";\nlet d = a + b; call(WIDE);\n    /// | WIDE |\n    // WIDE";
        assert_eq!(found("a.rs", rust), [1, 6, 8, 13]);
        assert_eq!(found(GENERATED[0], rust), []);
        assert_eq!(found("a.js", "call(WIDE);\n  // WIDE\n/* a\n * WIDE */"), [2, 4]);
        assert_eq!(found("a.py", "call(WIDE)\n# WIDE\n\"\"\"WIDE\nWIDE\n\"\"\"\nWIDE"), [2, 3, 4]);
        assert_eq!(found("a.toml", "# WIDE\na = WIDE"), [1]);
        assert_eq!(found(".ci/run", "# WIDE\na WIDE"), [1]);
    }

    #[test]
    fn code_is_counted_without_comments_blanks_and_tests() {
        let text = "//! a\n\nfn b() {\n    /* c\n    d */ e(); // f\n}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let source = Source::new("backends/b/src/a.rs", text);
        assert_eq!(code_lines(&source), 3);
        let sources = [source, Source::new("backends/b/src/kernels.rs", "fn h() {}\nfn i() {}")];
        let found = |too_many, beyond: &[&str]| too_much("backends/b", &sources, too_many, beyond).len();
        assert_eq!((found(6, &[]), found(5, &[])), (0, 1));
        assert_eq!((found(4, &["kernels.rs"]), found(3, &["kernels.rs"])), (0, 1));
        assert_eq!((found(6, &["c.rs"]), found(9, &["kernels.rs", "a.rs"])), (1, 1), "missing; nothing left");
    }

    #[test]
    fn a_missing_a_second_and_a_scattered_switch_are_found() {
        let of = |texts: &[&str]| {
            let sources: Vec<_> =
                texts.iter().enumerate().map(|(n, text)| Source::new(&format!("{n}.rs"), text)).collect();
            feature_switches(&sources, &["host".to_owned(), "cuda".to_owned()], "facade").len()
        };
        let both = "#[cfg(feature = \"host\")]\n/* feature = \"host\" */\n#[cfg(feature = \"cuda\")]";
        assert_eq!(of(&[both]), 0);
        assert_eq!(of(&["#[cfg(feature = \"host\")]"]), 1);
        assert_eq!(of(&[both, "cfg!(feature = \"host\")"]), 2);
        assert_eq!(of(&["#[cfg(feature = \"host\")]", "#[cfg(feature = \"cuda\")]"]), 1);
        assert_eq!(of(&[both, "#[cfg(feature = $feature)]"]), 0);
        assert_eq!(of(&[&format!("{both}\n#[cfg(feature = \"fast\")]")]), 1);
    }

    #[test]
    fn machine_paths_are_found() {
        let text = ["see /wo", "rk/main\n", "cd \"/ho", "me/me\"\nframe", "/wo", "rk/a and ~/wo", "rk/b"].concat();
        assert_eq!(lines(&machine_paths("a", &text)), [1, 2]);
    }
}
