//! Source text, parsed as far as the rules need it.

use std::path::{Path, PathBuf};

/// A violation of a rule, and its position.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// One Rust file.
pub(crate) struct Source {
    /// The path from the root of the workspace, with `/`.
    pub(crate) file: String,
    /// The unchanged lines.
    pub(crate) lines: Vec<String>,
    /// The same lines without comments, and with blanks for the contents of string and character literals.
    pub(crate) code: Vec<String>,
    /// Whether the line has a comment, or a part of one.
    pub(crate) has_comment: Vec<bool>,
    /// Whether the line belongs to an item under `#[cfg(test)]`.
    pub(crate) in_tests: Vec<bool>,
    /// For each line, whether it belongs to a macro.
    in_macros: Vec<bool>,
}

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let (code, has_comment) = blank_out(text);
        let mut code: Vec<String> = code.lines().map(str::to_owned).collect();
        code.resize(lines.len(), String::new());
        let in_tests = lines_of_items(&code, "#[cfg(test)]");
        let in_macros = lines_of_items(&code, "macro_rules!");
        Self { file: file.to_owned(), lines, code, has_comment, in_tests, in_macros }
    }

    /// Returns the lines of code outside tests, numbered from 1.
    pub(crate) fn code_outside_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let code = self.code.iter().zip(&self.in_tests).enumerate();
        code.filter(|(_, (_, test))| !**test).map(|(index, (line, _))| (index + 1, line.as_str()))
    }

    /// Returns the lines of [`code_outside_tests`](Self::code_outside_tests) that belong to macros.
    pub(crate) fn code_of_macros(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code_outside_tests().filter(|(line, _)| self.in_macros[line - 1])
    }

    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { file: self.file.clone(), line, what: what.into() }
    }
}

/// Panics if there are findings, and lists them, one per line.
pub(crate) fn report(findings: &[Finding]) {
    let list: Vec<String> =
        findings.iter().map(|Finding { file, line, what }| format!("{file}:{line}: {what}")).collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), list.join("\n"));
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns all files below a folder of the workspace, sorted, as paths from the root with `/`.
pub(crate) fn files(below: &str) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("target") || is_private(&path) => {}
                true => walk(&path, found),
                false => found.push(path),
            }
        }
    }

    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    let relative = |path: &PathBuf| {
        let parts = path.strip_prefix(root()).unwrap().iter().map(|part| part.to_string_lossy());
        parts.collect::<Vec<_>>().join("/")
    };
    let mut names: Vec<String> = found.iter().map(relative).collect();
    names.sort();
    names
}

/// Returns whether this is a hidden folder that does not belong to the project.
fn is_private(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') && ![".ci", ".github", ".cargo"].contains(&name.as_ref())
}

/// Returns the Rust files below a folder.
pub(crate) fn sources(below: &str) -> Vec<Source> {
    let rust = files(below).into_iter().filter(|file| file.ends_with(".rs"));
    rust.map(|file| Source::new(&file, &std::fs::read_to_string(root().join(&file)).unwrap())).collect()
}

/// Returns whether the code contains this whole word.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    words(code).any(|(_, found)| found == word)
}

/// Returns the words of the code, each with the offset of its end.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).map(|word| {
        let end = word.as_ptr() as usize - code.as_ptr() as usize + word.len();
        (end, word)
    })
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Comments and the contents of strings and characters become blanks; line ends stay. Also says which lines have a
/// comment.
fn blank_out(text: &str) -> (String, Vec<bool>) {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let (mut has_comment, mut line) = (vec![false; text.lines().count() + 1], 0);
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_blank(&chars, at);
        let (blank, is_comment) = (end > at, end > at && chars[at] == '/');
        for c in &chars[at..end.max(at + 1)] {
            out.push(if blank && !['\n', '"'].contains(c) { ' ' } else { *c });
            has_comment[line] |= is_comment;
            line += usize::from(*c == '\n');
        }
        at = end.max(at + 1);
    }
    (out, has_comment)
}

/// Returns the end of the comment or literal that starts at `at`, or `at` itself if none starts there.
fn end_of_blank(chars: &[char], at: usize) -> usize {
    let starts = |pattern: &str| pattern.chars().enumerate().all(|(n, c)| chars.get(at + n) == Some(&c));
    let find =
        |from: usize, wanted: &dyn Fn(usize) -> bool| (from..chars.len()).find(|n| wanted(*n)).unwrap_or(chars.len());
    let inside_word = at > 0 && is_word(chars[at - 1]);
    if starts("//") {
        return find(at, &|n| chars[n] == '\n');
    }
    if starts("/*") {
        let (mut depth, mut n) = (1, at + 2);
        while depth > 0 && n < chars.len() {
            match (chars[n], chars.get(n + 1)) {
                ('/', Some('*')) => (depth, n) = (depth + 1, n + 1),
                ('*', Some('/')) => (depth, n) = (depth - 1, n + 1),
                _ => {}
            }
            n += 1;
        }
        return n;
    }
    if !inside_word && (starts("r\"") || starts("r#") || starts("br\"") || starts("br#")) {
        let first = find(at, &|n| chars[n] != 'b' && chars[n] != 'r');
        let quote = find(first, &|n| chars[n] != '#');
        if chars.get(quote) == Some(&'"') {
            let closes =
                |n: usize| chars[n] == '"' && chars[n + 1..].iter().take_while(|c| **c == '#').count() >= quote - first;
            return (find(quote + 1, &closes) + 1 + quote - first).min(chars.len());
        }
    }
    if chars[at] == '"' {
        let mut n = at + 1;
        while n < chars.len() && chars[n] != '"' {
            n += if chars[n] == '\\' { 2 } else { 1 };
        }
        return (n + 1).min(chars.len());
    }
    if chars[at] == '\'' && chars.get(at + 1) == Some(&'\\') {
        return (find(at + 3, &|n| chars[n] == '\'') + 1).min(chars.len());
    }
    if chars[at] == '\'' && chars.get(at + 2) == Some(&'\'') {
        return at + 3;
    }
    at
}

/// Returns for each line whether it is part of an item with this marker.
fn lines_of_items(code: &[String], marker: &str) -> Vec<bool> {
    let mut inside = vec![false; code.len()];
    let mut line = 0;
    while line < code.len() {
        if !code[line].contains(marker) {
            line += 1;
            continue;
        }
        let mut depth = 0;
        'item: while line < code.len() {
            inside[line] = true;
            for c in code[line].chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if (c == '}' || c == ';') && depth == 0 {
                    break 'item;
                }
            }
            line += 1;
        }
        line += 1;
    }
    inside
}
