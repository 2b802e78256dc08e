//! Measured figures in documents. Each has a single source, from which documents quote it:
//!
//! * Instruction counts are in `benches/instructions.txt`. A quote names the bench: "596 instructions (`small`)" or
//!   "`small`: 596 instructions".
//! * Figures measured by hand are in the tables of `docs/BENCHMARKS.md`. A quote is a link to their section whose title
//!   names a cell by its row and column: `[1.02](docs/BENCHMARKS.md#fragmentation "policy:compact → mean")`.
//!
//! Figures are those with a unit, and ratios with two decimals or more. A quote may be rounded. `docs/BENCHMARKS.md`
//! itself is free to tell history.

use super::markdown::{anchor, line_of, without_code};
use super::source::{Finding, has_word};

pub(crate) const COUNTS: &str = "benches/instructions.txt";
pub(crate) const MEASURED: &str = "docs/BENCHMARKS.md";

/// Folders whose documents contain figures with these units that are not our measurements.
const NOT_MEASURED: [&str; 2] = [
    "backends/",      // the order of magnitude of a driver's calls
    "tests/drivers/", // virtual time, as the simulated drivers define it
];

/// The units that follow a measured figure.
const UNITS: [&str; 8] = ["ns", "µs", "ms", "MiB/s", "GiB/s", "GB/s", "×", "times"];

/// What comes before a number that is a version.
const VERSIONED: [&str; 7] = ["CUDA", "OpenCL", "PyTorch", "Python", "Rust", "Vulkan", "Zero"];

/// The benches of `benches/instructions.txt` with their counts.
pub(crate) fn counts(text: &str) -> Vec<(&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| line.split_once(' '));
    entries.filter_map(|(bench, count)| Some((bench, count.trim().parse().ok()?))).collect()
}

/// Finds instruction counts that name no bench, or that differ from the count of the bench that they name. Tables may
/// not contain instruction counts, because a cell has no room for the name.
pub(crate) fn wrong_instructions(file: &str, text: &str, counts: &[(&str, f64)]) -> Vec<Finding> {
    let text = &without_code(text);
    let is_count = |cell: &Cell| [&cell.row, &cell.column].iter().any(|name| name.contains("instruction"));
    let in_tables = cells(text).into_iter().filter(is_count).map(|cell| Finding {
        file: file.to_owned(),
        line: cell.line,
        what: format!("instruction counts in a table: move it to {MEASURED}, and link to it"),
    });
    let mut findings: Vec<_> = in_tables.collect();
    for (at, _) in text.match_indices("instruction") {
        let before = text[..at].trim_end();
        let start = before.trim_end_matches(is_figure).len();
        let Some(quoted) = Figure::parse(&before[start..]).filter(|_| before.len() < at) else { continue };
        let behind = text[at..].trim_start_matches(char::is_alphabetic).trim_start();
        let ahead = before[..start].trim_end();
        let bench = bench_behind(behind).or_else(|| bench_ahead(ahead));
        let entry = counts.iter().find(|(name, _)| Some(*name) == bench || short(name) == bench);
        let what = match (bench, entry) {
            (None, _) => format!(
                "`{} instructions` names no bench: write \"N instructions (`BENCH`)\" with a bench and its count from \
                 {COUNTS}, or move the figure to {MEASURED}, and link to it",
                quoted.text
            ),
            (Some(bench), None) => format!("{COUNTS} has no bench `{bench}`: name one of its benches"),
            (Some(_), Some((_, count))) if quoted.rounds(*count) => continue,
            (Some(bench), Some((_, count))) => format!(
                "`{} instructions` for `{bench}`, but {COUNTS} has {count}: write {}",
                quoted.text,
                quoted.written(*count)
            ),
        };
        findings.push(Finding { file: file.to_owned(), line: line_of(text, start), what });
    }
    findings
}

/// Returns the bench that is named in brackets after a count.
fn bench_behind(text: &str) -> Option<&str> {
    Some(text.strip_prefix("(`")?.split_once("`)")?.0)
}

/// Returns the bench that is named before a count, followed by a colon.
fn bench_ahead(text: &str) -> Option<&str> {
    text.strip_suffix("`:")?.rsplit_once('`').map(|(_, name)| name)
}

/// Returns the short form of a name: `small` for `bench/small`.
fn short(name: &str) -> Option<&str> {
    name.split_once('/').map(|(_, short)| short)
}

/// Finds quotes of `docs/BENCHMARKS.md` that differ from the cell that they name, and figures that should be quotes.
pub(crate) fn wrong_quotes(file: &str, text: &str, measured: &str) -> Vec<Finding> {
    let mut text = without_code(text);
    let cells = cells(measured);
    let mut findings = Vec::new();
    let mut at = 0;
    while let Some(quote) = Quote::next(&text, at) {
        at = quote.end;
        if let Some(what) = quote.fault(&cells) {
            findings.push(Finding { file: file.to_owned(), line: line_of(&text, quote.start), what });
        }
        // Blank out the quote, so that its figure is not found again. Offsets and line numbers stay the same.
        let quoted = text[quote.start..quote.end].bytes();
        let blank: String = quoted.map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        let (start, end) = (quote.start, quote.end);
        text.replace_range(start..end, &blank);
    }
    if !NOT_MEASURED.iter().any(|folder| file.starts_with(folder)) {
        findings.extend(unquoted(&text).into_iter().map(|(start, figure)| {
            let what =
                format!("`{figure}` looks like a measurement: quote a cell of {MEASURED}, or link to it instead");
            Finding { file: file.to_owned(), line: line_of(&text, start), what }
        }));
    }
    findings
}

/// Figures with a unit of measurement, and ratios, each with its place.
fn unquoted(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|first| at + first) {
        let len = text[start..].find(|c| !is_figure(c)).unwrap_or(text.len() - start);
        at = start + len;
        let figure = &text[start..at];
        let inside_word = text[..start].ends_with(|c: char| c.is_alphanumeric() || "_-#".contains(c));
        let behind = text[at..].trim_start();
        let unit = UNITS.iter().find(|unit| {
            let rest = behind.strip_prefix(**unit);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        });
        match unit {
            Some(&"times") if !figure.trim_end_matches('.').contains('.') => {} // a number of repetitions
            Some(unit) if !inside_word => found.push((start, format!("{figure} {unit}"))),
            None if !inside_word && is_ratio(text, start, figure) => found.push((start, figure.to_owned())),
            _ => {}
        }
    }
    found
}

/// Whether a figure without a unit is one like 1.02, in text: neither a percentage nor a version.
fn is_ratio(text: &str, start: usize, figure: &str) -> bool {
    let (before, behind) = (&text[..start], text[start + figure.len()..].trim_start());
    let decimals = figure.trim_end_matches(['.', ',']).split_once('.').filter(|(whole, _)| whole.len() == 1);
    let is_like_one = decimals.is_some_and(|(_, decimals)| decimals.len() > 1 && !decimals.contains(['.', ',']));
    let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
    let in_code = line.matches('`').count() % 2 == 1;
    let in_address = before.ends_with('/');
    let of_product = before.split_whitespace().next_back().is_some_and(|word| VERSIONED.contains(&word));
    let sentence = [". ", ".\n", "\n\n"].into_iter().filter_map(|end| before.rfind(end)).max().unwrap_or(0);
    let sentence = &before[sentence..];
    let of_versions = has_word(sentence, "version") || has_word(sentence, "Rust");
    is_like_one && !behind.starts_with('%') && !(in_code || in_address || of_product || of_versions)
}

/// A link into `docs/BENCHMARKS.md` with a title.
struct Quote<'a> {
    start: usize,
    end: usize,
    figure: &'a str,
    section: &'a str,
    title: &'a str,
}

impl<'a> Quote<'a> {
    fn next(text: &'a str, from: usize) -> Option<Self> {
        text[from..].match_indices("](").find_map(|(at, _)| {
            let at = from + at;
            let start = text[..at].rfind('[').filter(|start| *start >= from)?;
            let (target, rest) = text[at + 2..].split_once("\")")?;
            let (address, title) = target.split_once('"')?;
            let (path, section) = address.trim_end().split_once('#')?;
            let is_quote = !address.contains(')') && path.ends_with("BENCHMARKS.md");
            let quote = Self { start, end: text.len() - rest.len(), figure: &text[start + 1..at], section, title };
            is_quote.then_some(quote)
        })
    }

    /// Returns what is wrong with the quote, if anything.
    fn fault(&self, cells: &[Cell]) -> Option<String> {
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some(quoted) = Figure::first(self.figure) else {
            return Some(format!("the quote of \"{title}\" has no figure: `{}`", self.figure));
        };
        let Some((row, column)) = title.split_once(" → ") else {
            return Some(format!("\"{title}\" names no cell: write \"ROW → COLUMN\""));
        };
        let named = |cell: &&Cell| (&*cell.section, &*cell.row, &*cell.column) == (self.section, row, column);
        let named: Vec<_> = cells.iter().filter(named).collect();
        let [cell] = named.as_slice() else {
            return Some(format!(
                "{MEASURED}#{} has {} cells \"{title}\": name a row and a column that have exactly one",
                self.section,
                named.len()
            ));
        };
        (!quoted.rounds(cell.value)).then(|| {
            let right = quoted.written(cell.value);
            format!(
                "quotes {}, but {MEASURED}:{} has {} in \"{title}\": write {right}",
                quoted.text, cell.line, cell.value
            )
        })
    }
}

/// A table cell that contains a figure. If there are several, only the first counts.
struct Cell {
    line: usize,
    section: String,
    row: String,
    column: String,
    value: f64,
}

/// Returns the cells of all tables in a document. A table belongs to the last heading above it.
fn cells(document: &str) -> Vec<Cell> {
    let plain = |cell: &str| cell.trim().replace(['*', '`'], "");
    let split = |line: &str| line.trim().trim_matches('|').split('|').map(plain).collect::<Vec<_>>();
    let mut found = Vec::new();
    let (mut section, mut head) = (String::new(), Vec::new());
    for (index, line) in without_code(document).lines().enumerate() {
        if line.starts_with('#') {
            section = anchor(line);
        }
        if !line.starts_with('|') {
            head.clear();
        } else if head.is_empty() {
            head = split(line);
        } else {
            let row = split(line);
            for (column, cell) in head.iter().zip(&row).skip(1) {
                let value = Figure::first(cell).map(|figure| figure.value);
                let (section, row, column) = (section.clone(), row[0].clone(), column.clone());
                found.extend(value.map(|value| Cell { line: index + 1, section, row, column, value }));
            }
        }
    }
    found
}

/// A number as it is written: `1,833` or `0.99`.
struct Figure<'a> {
    text: &'a str,
    value: f64,
    decimals: usize,
}

impl<'a> Figure<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_matches([',', '.']);
        let digits = text.replace(',', "");
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(Self { text, value: digits.parse().ok()?, decimals })
    }

    /// Returns the first number in the text.
    fn first(text: &'a str) -> Option<Self> {
        text.split(|c| !is_figure(c)).find_map(Self::parse)
    }

    /// Returns whether the figure is this value, rounded to the figure's number of decimals.
    fn rounds(&self, value: f64) -> bool {
        (self.value - value).abs() <= 0.5 * 0.1_f64.powi(self.decimals as i32) + 1e-9
    }

    /// Formats a value with the figure's number of decimals.
    fn written(&self, value: f64) -> String {
        let text = format!("{value:.*}", self.decimals);
        let (whole, decimals) = text.split_once('.').map_or((&*text, ""), |(whole, _)| (whole, &text[whole.len()..]));
        let digits = whole.len();
        let groups = whole.chars().enumerate().flat_map(|(n, digit)| {
            let comma = n > 0 && (digits - n) % 3 == 0 && digit.is_ascii_digit();
            comma.then_some(',').into_iter().chain([digit])
        });
        groups.chain(decimals.chars()).collect()
    }
}

fn is_figure(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == ','
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTRUCTIONS: &str =
        "# a comment 7\nbench/small   596.0\nfacade/buffer 871.5\nfacade/memory_stats 265512.9\n";

    /// Returns the lines with findings, and what each advises to write.
    fn advice(findings: &[Finding]) -> Vec<(usize, &str)> {
        let last = |what: &str| what.rfind("write ").map_or(0, |at| at + "write ".len());
        findings.iter().map(|finding| (finding.line, &finding.what[last(&finding.what)..])).collect()
    }

    fn instructions(text: &str) -> Vec<Finding> {
        wrong_instructions("a.md", text, &counts(INSTRUCTIONS))
    }

    #[test]
    fn counts_of_instructions_are_those_of_the_bench_named() {
        let right = "596 instructions (`small`), or 596 instructions\n(`bench/small`); `memory_stats`: 265,513 instructions\n\
                     871.5 instructions (`buffer`), the 3 best instructions, instructions (`small`)\n\
                     ```\n7 instructions\n```\nno instructions";
        assert_eq!(instructions(right), []);
        let wrong = "a\n597 instructions (`small`)\nb: 595\ninstructions (`small`)\n`memory_stats`: 9 instructions";
        assert_eq!(advice(&instructions(wrong)), [(2, "596"), (3, "596"), (5, "265,513")]);
    }

    #[test]
    fn counts_of_instructions_name_a_bench() {
        let found =
            instructions("now 596 instructions, it\nwas 1,833 instructions (`smaller`)\n- 596 instructions `small`");
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(found[0].what.contains("names no bench") && found[1].what.contains("no bench `smaller`"));
        let table = "| bench | instructions |\n|---|---|\n| small | 596 |\n| stats | many |\n";
        assert_eq!(instructions(table).iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    }

    const TABLES: &str = "# All\n\n| x | y |\n|---|---|\n| a | 7 ns |\n\n## One, and two\n\n| setting | mean | `worst` |\n\
                          |---|--:|--:|\n| **a:b** | 1.017 | 3–4 |\n| c | 6,202 | none |\n| d | 1 | |\n| d | 2 | |\n";

    fn quotes(text: &str) -> Vec<Finding> {
        wrong_quotes("docs/a.md", text, TABLES)
    }

    #[test]
    fn quotes_are_the_cell_rounded() {
        let right = "[1.02](BENCHMARKS.md#one-and-two \"a:b → mean\") times and [1.017](../docs/BENCHMARKS.md#one-and-two\n\
                     \"a:b →\nmean\"), [about 3 ns](BENCHMARKS.md#one-and-two \"a:b → worst\"), [7 ns](BENCHMARKS.md#all \"a → y\"), \
                     [6,202](BENCHMARKS.md#one-and-two \"c → mean\"), [all](BENCHMARKS.md), [b](c.md#d \"e\")";
        assert_eq!(quotes(right), []);
        let wrong = "\n[1.03](BENCHMARKS.md#one-and-two \"a:b → mean\")\n[x](y) [6201 ns](BENCHMARKS.md#one-and-two \"c → mean\")";
        assert_eq!(advice(&quotes(wrong)), [(2, "1.02"), (3, "6,202")]);
        assert!(quotes(wrong)[0].what.contains("docs/BENCHMARKS.md:11 has 1.017"), "{}", quotes(wrong)[0].what);
    }

    #[test]
    fn quotes_name_one_cell() {
        for title in ["a:b", "a:b → y", "a → mean", "c → worst", "d → mean"] {
            assert_eq!(quotes(&format!("[1](BENCHMARKS.md#one-and-two \"{title}\")")).len(), 1, "{title}");
        }
        assert_eq!(quotes("[1](BENCHMARKS.md#one \"d → mean\")").len(), 1);
        assert_eq!(quotes("[many](BENCHMARKS.md#one-and-two \"a:b → mean\")").len(), 1);
    }

    #[test]
    fn figures_with_a_unit_are_quotes() {
        let text = "It takes 12 µs,\n38.6–39.5 ns or 0.2\nms; it is 6.1× as fast and 1.5 times as large.\n7 times, 12 nsec, a12 ns, 20 \
                    MiB, version 1.5.\n```\n3 ns\n```";
        let found = quotes(text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2, 2, 3, 3]);
        assert!(found[0].what.contains("`12 µs`") && found[4].what.contains("`1.5 times`"));
        assert_eq!(wrong_quotes("tests/drivers/a/README.md", text, TABLES), []);
    }

    #[test]
    fn ratios_are_quotes() {
        let wrong = "It reserves 1.02, and\nPyTorch's default 1.58. Rust compiles.\n\nNow (1.10), but\n2.0 as of version 1.17.\n\
                     Then 1.234.";
        assert_eq!(quotes(wrong).iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2, 4, 6]);
        let right = "PyTorch 2.15, Rust 1.88, Level\nZero 1.17. The oldest Rust is 1.88; it was 1.95. From version 1.4 of it to\n\
                     1.17. 0.25 % of 1.5, `at 1.02`, https://a.org/1.02 and [1.02](BENCHMARKS.md#one-and-two \"a:b → mean\"), \
                     1.88.0, 12.34, a1.23.\n```\n1.02\n```";
        assert_eq!(quotes(right), []);
    }
}
