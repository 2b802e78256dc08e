//! Data flows one way: no module uses one above it.

use super::source::{Finding, Source, is_word, words};

/// The modules in a folder of the core, from the bottom. Modules in one row may use each other.
struct Layers {
    /// The folder, as a path of modules from the crate's root.
    folder: &'static [&'static str],
    rows: &'static [&'static [&'static str]],
}

const LAYERS: [Layers; 4] = [
    Layers {
        folder: &[],
        rows: &[
            &["types"],
            &["sync"],
            &["backend_kit", "host_memory", "interprocess", "mem_source", "virtual_memory"],
            &["backend", "graphs", "share"],
            &["stream"],
            &["current"],
            &["event", "operator"],
            &["alloc"],
            &["pinned"],
            &["accelerator"],
            &["graph", "imported", "mem_pool"],
            &["buffer"],
            &["peer"],
        ],
    },
    Layers {
        folder: &["alloc"],
        rows: &[
            &["settings"],
            &["blocks"],
            &["history"],
            &["stats"],
            &["arena"],
            &["driver"],
            &["arenas"],
            &["source"],
            &["hooks", "mem_pools", "pending"],
            &["device"],
            &["allocator"],
        ],
    },
    Layers {
        folder: &["alloc", "source"],
        rows: &[&["turns"], &["context"], &["interface"], &["compact", "expandable", "segments"], &["memory"]],
    },
    Layers {
        folder: &["alloc", "source", "compact"],
        rows: &[
            &["Compact", "CompactSource", "SMALL_SIZE"], // of the folder's own file
            &["placement_log"],
            &["owners"],
            &["ranges"],
            &["aliases"],
            &["place"],
            &["cost_model"],
            &["plan"],
            &["epochs"],
            &["export", "grow", "release"],
            &["segments"],
            &["check"],
        ],
    },
];

/// Finds uses of a module above the using module, and modules without a place in the order.
pub(crate) fn upward_uses(sources: &[Source]) -> Vec<Finding> {
    let all = LAYERS.map(|Layers { folder, .. }| {
        let file = sources.iter().find(|source| is_file_of(source, folder));
        Exports { folder, items: file.map(exports).unwrap_or_default() }
    });
    LAYERS.iter().flat_map(|layers| upward_uses_in(layers, &all, sources)).collect()
}

/// What the file of a folder re-exports: item and module.
struct Exports {
    folder: &'static [&'static str],
    items: Vec<(String, String)>,
}

/// The path of the module that an item is in. A re-exported item is used from there, whatever path names it.
fn resolved(mut path: Vec<String>, exports: &[Exports]) -> Vec<String> {
    for Exports { folder, items } in exports {
        let name = inside(&path, folder);
        if let Some((_, module)) = name.and_then(|name| items.iter().find(|(item, _)| item == name)) {
            path.insert(folder.len(), module.clone());
        }
    }
    path
}

fn upward_uses_in(layers: &Layers, exports: &[Exports], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let path = module_path(&source.file);
        let Some(own) = inside(&path, layers.folder) else { continue };
        let Some(rank) = layers.rank(own) else {
            let what = format!("module `{own}` belongs to no layer: add it to LAYERS");
            findings.push(source.finding(1, what));
            continue;
        };
        for (line, used) in used_paths(source, &path) {
            let used = resolved(used, exports);
            let Some(module) = inside(&used, layers.folder) else { continue };
            match layers.rank(module) {
                Some(used) if used > rank => findings.push(source.finding(
                    line,
                    format!(
                        "`{own}` uses `{module}`, a higher layer: move this code up, or the code that it uses down"
                    ),
                )),
                Some(_) => {}
                None => findings.push(source.finding(
                    line,
                    format!(
                        "`{module}` is neither a module of `{}` nor re-exported there: name its module",
                        layers.name()
                    ),
                )),
            }
        }
    }
    findings
}

impl Layers {
    fn rank(&self, module: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.contains(&module))
    }

    fn name(&self) -> String {
        [&["crate"], self.folder].concat().join("::")
    }
}

/// Returns the name that follows the folder in a path, if the path starts with that folder.
fn inside<'a>(path: &'a [String], folder: &[&str]) -> Option<&'a str> {
    let is_there = path.len() > folder.len() && path.iter().zip(folder).all(|(name, folder)| name == folder);
    is_there.then(|| path[folder.len()].as_str())
}

/// Returns the module path of a file: `alloc`, `arena` for `…/src/alloc/arena.rs` and `…/src/alloc/arena/mod.rs`; an
/// empty path for `…/src/lib.rs`.
fn module_path(file: &str) -> Vec<String> {
    let inside = file.rsplit_once("src/").map_or(file, |(_, inside)| inside);
    let mut path: Vec<_> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    path.pop_if(|last| *last == "mod" || *last == "lib");
    path
}

fn is_file_of(source: &Source, folder: &[&str]) -> bool {
    module_path(&source.file) == folder
}

/// Returns the items that a module re-exports, each with the module that it comes from.
fn exports(source: &Source) -> Vec<(String, String)> {
    let code = source.code.join(" ");
    let statements = code.split(';').filter_map(|statement| {
        let statement = statement.trim();
        statement.strip_prefix("pub use ").or_else(|| statement.strip_prefix("pub(crate) use "))
    });
    let pairs = statements.filter_map(|statement| statement.trim_start_matches("self::").split_once("::"));
    pairs
        .flat_map(|(module, items)| {
            words(items).map(|(_, item)| (item.to_owned(), module.to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

/// The paths that a source names from the crate's root, `self` or `super`, resolved to the root, with their lines. In a
/// module of tests `super` is the file itself, so there only those from the root count.
fn used_paths(source: &Source, own: &[String]) -> Vec<(usize, Vec<String>)> {
    let code = source.code.join("\n");
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with([':', '$']) || code[..at].chars().next_back().is_some_and(is_word) {
                continue; // inside of another path
            }
            let index = code[..at].matches('\n').count();
            if start != "crate::" && source.in_tests[index] {
                continue;
            }
            let mut rest = &code[at + start.len()..];
            let mut base = match start {
                "crate::" => Vec::new(),
                _ => own.to_vec(),
            };
            if start == "super::" {
                base.pop();
            }
            while let Some(above) = rest.strip_prefix("super::") {
                base.pop();
                rest = above;
            }
            found.extend(paths(rest).into_iter().map(|path| (index + 1, [base.clone(), path].concat())));
        }
    }
    found
}

/// Returns the paths in a `use` tree: `a::b` and `a::c` for `a::{b, c}`, and `a` for `a::*`.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let name: String = tree.chars().take_while(|c| is_word(*c)).collect();
    if !name.is_empty() {
        let Some(rest) = tree[name.len()..].strip_prefix("::") else { return vec![vec![name]] };
        return paths(rest).into_iter().map(|path| [vec![name.clone()], path].concat()).collect();
    }
    if tree.starts_with('*') {
        return vec![vec!["*".to_owned()]];
    }
    let Some(group) = tree.strip_prefix('{') else { return vec![Vec::new()] };
    let (mut depth, mut expected, mut found) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            _ if expected && (is_word(c) || c == '*') => {
                found.extend(paths(&group[at..]));
                expected = false;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(file: &str, text: &str) -> Source {
        Source::new(&format!("core/src/{file}"), text)
    }

    #[test]
    fn a_use_of_a_higher_layer_is_found_in_every_form() {
        for (file, text, line) in [
            ("types/a.rs", "use crate::backend::Backend;", 1),
            ("stream.rs", "\nuse crate::{backend::Backend, alloc::{settings::X}};", 2),
            ("event.rs", "fn a() {\n\n    crate::Accelerator::open(0) }", 3),
            ("backend.rs", "use super::stream::Stream;", 1),
            ("stream.rs", "use crate::event::Event;", 1),
            ("types/a.rs", "use super::super::sync::lock;", 1),
            ("types/mod.rs", "use crate::{\n    Accelerator, \n};", 1),
            // Inside the allocator.
            ("alloc/blocks/block.rs", "use crate::alloc::source::compact::Owner;", 1),
            ("alloc/blocks/mod.rs", "use super::arena::Arena;", 1),
            ("alloc/arena/store.rs", "use super::super::{settings::A, source::Context};", 1),
            ("alloc/history/recorder.rs", "\nuse crate::{alloc::{stats::Pair, blocks::Block}, types::A};", 2),
            ("alloc/driver/mod.rs", "fn a() { crate::alloc::CachingAllocator::new() }", 1),
            ("alloc/source/segments.rs", "use super::memory::Memory;", 1),
            ("alloc/source/compact/cost_model.rs", "use super::{Compact, plan::Effort};", 1),
            // By a name that the crate's root re-exports.
            ("alloc/blocks/mod.rs", "use crate::CachingAllocator;", 1),
            ("alloc/stats/mod.rs", "use crate::{\n    types::A, CachingAllocator};", 1),
            // By a glob of a folder whose modules have an order.
            ("alloc/blocks/mod.rs", "use crate::alloc::*;", 1),
            ("alloc/blocks/mod.rs", "use super::*;", 1),
            ("alloc/blocks/block.rs", "\nuse super::super::*;", 2),
            ("alloc/blocks/block.rs", "use crate::alloc::{settings::A, *};", 1),
            ("alloc/source/compact/plan.rs", "use super::super::*;", 1),
            ("types/a.rs", "use crate::*;", 1),
        ] {
            let lib = core(
                "lib.rs",
                "pub use accelerator::Accelerator;\npub use types::{A, B};\npub use alloc::CachingAllocator;",
            );
            let alloc = core("alloc/mod.rs", "pub use self::allocator::CachingAllocator;");
            let findings = upward_uses(&[lib, alloc, core(file, text)]);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
            assert_eq!(findings[0].line, line, "{text}");
        }
    }

    #[test]
    fn uses_of_lower_layers_are_not() {
        let lib = core("lib.rs", "pub use types::{A, B};\npub use accelerator::Accelerator;");
        let text = "use self::store::Store;\nuse crate::{alloc::blocks::Block, stream::Stream, A};\n// crate::lib::x";
        let arena = core("alloc/arena/mod.rs", text);
        let event = core("event.rs", "use crate::stream::Stream;\n#[cfg(test)]\nmod tests { use super::*; }");
        assert_eq!(upward_uses(&[lib, arena, event]), []);
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        for file in ["new.rs", "alloc/new.rs", "alloc/source/new/mod.rs"] {
            let findings = upward_uses(&[core(file, "")]);
            assert!(findings.len() == 1 && findings[0].what.contains("LAYERS"), "{findings:?}");
        }
    }
}
