//! Data flows one way through the core.

use super::source::{Finding, Source, has_word, is_word, words};

/// The core's modules from the bottom; those in one row may use each other.
const ORDER: [&[&str]; 9] = [
    &["types"],
    &["accounting", "backend", "host_memory", "summary", "virtual_memory"],
    &["sync"],
    &["stream", "event"],
    &["operator"],
    &["alloc"],
    &["pinned"],
    &["accelerator", "buffer", "peer"],
    &["lib"],
];

/// Files of the core with `unsafe` in them: the contract, the callers of its unsafe methods, a lock, and a
/// device of a test.
pub(crate) const UNSAFE_IN_CORE: [&str; 14] = [
    "src/accelerator.rs",
    "src/alloc/compact/memory.rs",
    "src/alloc/pages.rs",
    "src/alloc/segment.rs",
    "src/alloc/settle/tests.rs",
    "src/backend.rs",
    "src/buffer.rs",
    "src/host_memory.rs",
    "src/peer.rs",
    "src/pinned/buffer.rs",
    "src/pinned/memory.rs",
    "src/sync/barrier.rs",
    "src/sync/owned_lock.rs",
    "src/virtual_memory.rs",
];

/// Names of backends and of their drivers.
const BACKENDS: [&str; 9] =
    ["host", "cuda", "xpu", "opencl", "level_zero", "levelzero", "hip", "rocm", "metal"];

/// No module uses one above it.
pub(crate) fn upward_uses(sources: &[Source]) -> Vec<Finding> {
    let exports =
        sources.iter().find(|source| module_of(&source.file) == "lib").map(exports).unwrap_or_default();
    let mut findings = Vec::new();
    for source in sources {
        let from = module_of(&source.file);
        let Some(own) = rank(from) else {
            let what =
                format!("module `{from}` is not in the order of the layers: give it its place in ORDER");
            findings.push(source.finding(1, what));
            continue;
        };
        for (line, name) in crate_paths(source) {
            let module =
                exports.iter().find(|(item, _)| *item == name).map_or(name.as_str(), |(_, module)| module);
            match rank(module) {
                Some(used) if used > own => findings.push(source.finding(
                    line,
                    format!("`{from}` uses `{module}`, which lies above it: move the code up, or what it needs down"),
                )),
                Some(_) => {}
                None => findings.push(source.finding(
                    line,
                    format!("`crate::{name}` is no module and no re-export of lib.rs: name its module"),
                )),
            }
        }
    }
    findings
}

/// The allocator is the same for all backends.
pub(crate) fn backends_named(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (line, code) in source.code_outside_tests() {
            let lower = code.to_lowercase();
            for name in BACKENDS.iter().filter(|name| has_word(&lower, name)) {
                let what = format!("the code names `{name}`: ask the backend for a property instead");
                findings.push(source.finding(line, what));
            }
            // Messages and settings keys may mention them; a string that is a backend's name compares with it.
            for literal in literals(&source.lines[line - 1], code) {
                let kind = literal.split(':').next().unwrap_or_default().to_lowercase();
                if BACKENDS.contains(&kind.as_str()) {
                    let what =
                        format!("the string \"{literal}\" is a backend's name: ask for a property instead");
                    findings.push(source.finding(line, what));
                }
            }
            if has_word(code, "feature") && has_word(code, "cfg") {
                findings.push(source.finding(line, "features are the facade's: take the `cfg` out"));
            }
        }
    }
    findings
}

pub(crate) fn unsafe_where_not_listed(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in
        sources.iter().filter(|source| !UNSAFE_IN_CORE.iter().any(|file| source.file.ends_with(file)))
    {
        for (index, code) in source.code.iter().enumerate().filter(|(_, code)| has_word(code, "unsafe")) {
            let what = format!("`{}`: only {UNSAFE_IN_CORE:?} may be unsafe, move it there", code.trim());
            findings.push(source.finding(index + 1, what));
        }
    }
    findings
}

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|row| row.contains(&module))
}

/// `alloc` of `…/src/alloc/arena.rs`, `event` of `…/src/event.rs`.
fn module_of(file: &str) -> &str {
    let inside = file.rsplit_once("src/").map_or(file, |(_, inside)| inside);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

/// What lib.rs re-exports: item and module.
fn exports(lib: &Source) -> Vec<(String, String)> {
    let code = lib.code.join(" ");
    let statements = code.split(';').filter_map(|statement| statement.trim().strip_prefix("pub use "));
    let pairs = statements.filter_map(|statement| statement.split_once("::"));
    pairs
        .flat_map(|(module, items)| {
            words(items).map(|(_, item)| (item.to_owned(), module.to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

/// The first name of every path from the crate's root, with its line.
fn crate_paths(source: &Source) -> Vec<(usize, String)> {
    let code = source.code.join("\n");
    let nested = source.file.rsplit_once("src/").is_some_and(|(_, inside)| inside.contains('/'));
    let root = if nested { "super::super::" } else { "super::" };
    let mut found = Vec::new();
    for start in ["crate::", root] {
        for (at, _) in code.match_indices(start).filter(|(at, _)| !code[..*at].ends_with([':', '$'])) {
            if code[..at].chars().next_back().is_some_and(is_word) {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let rest = &code[at + start.len()..];
            found.extend(first_names(rest).into_iter().map(|name| (line, name)));
        }
    }
    found
}

/// `a` of `a::b`, and `a`, `c` of `{a::b, c::{d, e}}`; nothing of `*`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        let name: String = path.chars().take_while(|c| is_word(*c)).collect();
        return if name.is_empty() { Vec::new() } else { vec![name] };
    };
    let mut names = Vec::new();
    let (mut depth, mut expected) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            _ if expected && is_word(c) => {
                names.extend(first_names(&group[at..]));
                expected = false;
            }
            _ => {}
        }
    }
    names
}

/// The string literals of a line.
fn literals<'a>(line: &'a str, code: &str) -> Vec<&'a str> {
    let quotes: Vec<usize> = code.match_indices('"').map(|(at, _)| at).collect();
    quotes.chunks_exact(2).filter_map(|pair| line.get(pair[0] + 1..pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(file: &str, text: &str) -> Source {
        Source::new(&format!("core/src/{file}"), text)
    }

    fn found(findings: Vec<Finding>) -> Vec<(usize, String)> {
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_use_of_a_higher_layer_is_found_in_every_form() {
        for (file, text, line) in [
            ("types/a.rs", "use crate::backend::Backend;", 1),
            ("stream.rs", "\nuse crate::{event::Event, alloc::{Arena, X}};", 2),
            ("event.rs", "fn a() {\n\n    crate::Accelerator::open(0) }", 3),
            ("backend.rs", "use super::stream::Stream;", 1),
            ("types/a.rs", "use super::super::sync::lock;", 1),
            ("types/mod.rs", "use crate::{\n    Accelerator, \n};", 1),
        ] {
            let lib = core("lib.rs", "pub use accelerator::Accelerator;\npub use types::{A, B};");
            let findings = upward_uses(&[lib, core(file, text)]);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
            assert_eq!(findings[0].line, line, "{text}");
        }
    }

    #[test]
    fn uses_of_lower_layers_are_not() {
        let lib = core("lib.rs", "pub use types::{A, B};\npub use accelerator::Accelerator;");
        let alloc = core(
            "alloc/arena.rs",
            "use super::block::Block;\nuse crate::{stream::Stream, A};\n// crate::lib::x",
        );
        let event = core("event.rs", "use crate::stream::Stream; mod tests { use super::*; }");
        assert_eq!(upward_uses(&[lib, alloc, event]), []);
        let strange = upward_uses(&[core("new.rs", "")]);
        assert!(strange[0].what.contains("ORDER"), "{strange:?}");
    }

    #[test]
    fn names_of_backends_are_found_in_code_and_not_in_comments_and_messages() {
        let bad =
            "use x::Cuda;\nif kind == \"cuda\" {}\nlet host = 1;\n#[cfg(feature = \"a\")]\nname(\"host:1\")";
        let lines: Vec<usize> =
            found(backends_named(&[core("alloc/a.rs", bad)])).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
        let good = "// CUDA and `cuMemAlloc`\nlet a = [\"release_lock_on_cudamalloc\", \"a setting of CUDA alone\"];\n\
                    wait_host(); /* host */ const CUDA_ONLY: u8 = b'x';";
        assert_eq!(backends_named(&[core("alloc/a.rs", good)]), []);
    }

    #[test]
    fn unsafe_is_found_outside_the_listed_files() {
        let text = "#![allow(unsafe_code)]\nlet a = unsafe { b() }; // unsafe";
        assert_eq!(found(unsafe_where_not_listed(&[core("sync.rs", text)])).len(), 1);
        assert_eq!(unsafe_where_not_listed(&[core("buffer.rs", text)]), []);
    }
}
