//! What the core's modules may mention and do.

use super::source::{Finding, Source, has_word};

/// The files of the core that contain `unsafe`: the driver traits, the callers of their unsafe methods, type-erased
/// pointers, allocations by key, ordinary host memory, memory of other processes, synchronization, and what its
/// models and tests need.
pub(crate) const UNSAFE_IN_CORE: [&str; 29] = [
    "src/accelerator.rs",
    "src/alloc/allocator/key.rs",
    "src/alloc/allocator/mod.rs",
    "src/alloc/allocator/share.rs",
    "src/alloc/blocks/base.rs",
    "src/alloc/device/share.rs",
    "src/alloc/driver/mappings.rs",
    "src/alloc/driver/mod.rs",
    "src/alloc/driver/of_backend.rs",
    "src/alloc/driver/of_source.rs",
    "src/backend.rs",
    "src/buffer.rs",
    "src/buffer/sharing.rs",
    "src/graph.rs",
    "src/graphs.rs",
    "src/host_memory.rs",
    "src/imported.rs",
    "src/interprocess.rs",
    "src/mem_pool/kept.rs",
    "src/mem_source.rs",
    "src/peer.rs",
    "src/pinned/buffer.rs",
    "src/pinned/memory.rs",
    "src/stream/modelled.rs",
    "src/sync/barrier/linux.rs",
    "src/sync/barrier/tests.rs",
    "src/sync/owned_lock.rs",
    "src/sync/primitives/modelled.rs",
    "src/virtual_memory.rs",
];

/// The names of backends and of their drivers.
const BACKENDS: [&str; 10] =
    ["host", "cuda", "xpu", "opencl", "vulkan", "level_zero", "levelzero", "hip", "rocm", "metal"];

/// Finds names of backends in the code of the allocator, which is the same for all backends.
pub(crate) fn backends_named(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (line, code) in source.code_outside_tests() {
            let lower = code.to_lowercase();
            for name in BACKENDS.iter().filter(|name| has_word(&lower, name)) {
                let what = format!("`{name}` names a backend or its driver: ask the backend for a property instead");
                findings.push(source.finding(line, what));
            }
            // Messages and settings keys may mention a backend. A string that is exactly a backend's name can only be
            // there to compare with it.
            for literal in literals(&source.lines[line - 1], code) {
                let kind = literal.split(':').next().unwrap_or_default().to_lowercase();
                if BACKENDS.contains(&kind.as_str()) {
                    let what = format!(
                        "the string \"{literal}\" names a backend or its driver: ask the backend for a property instead"
                    );
                    findings.push(source.finding(line, what));
                }
            }
            if has_word(code, "feature") && has_word(code, "cfg") {
                findings.push(source.finding(line, "only the facade tests features: remove the `cfg`"));
            }
        }
    }
    findings
}

pub(crate) fn unsafe_where_not_listed(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !UNSAFE_IN_CORE.iter().any(|file| source.file.ends_with(file))) {
        for (index, code) in source.code.iter().enumerate().filter(|(_, code)| has_word(code, "unsafe")) {
            let what = format!("`{}`: move it to a file that may contain `unsafe`: {UNSAFE_IN_CORE:?}", code.trim());
            findings.push(source.finding(index + 1, what));
        }
    }
    findings
}

/// Returns the string literals in a line.
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
    fn names_of_backends_are_found_in_code_and_not_in_comments_and_messages() {
        let bad = "use x::Cuda;\nif kind == \"cuda\" {}\nlet host = 1;\n#[cfg(feature = \"a\")]\nname(\"host:1\")";
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
