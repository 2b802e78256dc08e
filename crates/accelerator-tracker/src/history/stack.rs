use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use crate::snapshot::Frame;

/// The return addresses of a call stack, innermost first.
pub(super) struct Stack(Box<[usize]>);

/// The maximum depth. Deeper stacks lose their outermost calls.
const DEEPEST: usize = 128;

impl Stack {
    /// Captures the stack of the calling thread.
    #[inline(never)]
    pub(super) fn here() -> Self {
        let mut addresses = [0; DEEPEST];
        let mut depth = 0;
        backtrace::trace(|frame| {
            addresses[depth] = frame.ip().addr();
            depth += 1;
            depth < DEEPEST
        });
        Self(addresses[..depth].into())
    }
}

/// Looks up the names of addresses, and caches them.
#[derive(Default)]
pub(super) struct Names {
    /// The frames of an address, several if calls were inlined.
    frames: HashMap<usize, Vec<Arc<Frame>>>,
    /// All strings, each stored once.
    texts: HashMap<String, Arc<str>>,
}

impl Names {
    /// Returns the calls of the program, without calls inside this library and the standard library, and without the
    /// start of the thread.
    pub(super) fn of(&mut self, stack: &Stack) -> Vec<Arc<Frame>> {
        let all = stack.0.iter().flat_map(|address| self.at(*address));
        let all: Vec<_> = all.take_while(|frame| !frame.name.contains(THREAD_START)).collect();
        let inside = all.iter().take_while(|frame| is_library(&frame.filename) || is_ours(&frame.filename)).count();
        let program: Vec<_> =
            all[inside..].iter().filter(|frame| !is_library(&frame.filename)).map(Arc::clone).collect();
        if program.is_empty() { all } else { program }
    }

    fn at(&mut self, address: usize) -> Vec<Arc<Frame>> {
        if let Some(frames) = self.frames.get(&address) {
            return frames.clone();
        }
        let mut frames = Vec::new();
        backtrace::resolve(address as *mut c_void, |symbol| {
            let name = symbol.name().map_or_else(|| "??".to_owned(), |name| format!("{name:#}"));
            let filename = symbol.filename().map_or_else(|| "??".into(), |file| file.to_string_lossy().into_owned());
            let line = symbol.lineno().unwrap_or(0);
            frames.push(Arc::new(Frame { name: self.text(name), filename: self.text(filename), line }));
        });
        self.frames.insert(address, frames.clone());
        frames
    }

    fn text(&mut self, text: String) -> Arc<str> {
        Arc::clone(self.texts.entry(text).or_insert_with_key(|text| text.as_str().into()))
    }
}

/// The function through which the standard library calls the program.
const THREAD_START: &str = "__rust_begin_short_backtrace";

// Calls are classified by source file, because inlined calls have no path in their names unless debug information is
// complete.

/// Returns whether a source file belongs to the standard library.
fn is_library(filename: &str) -> bool {
    filename.starts_with("/rustc/") || filename.contains("/lib/rustlib/src/rust/")
}

/// Returns whether a source file belongs to the recording crates. Its folder is then the name of a crate, with a
/// version in cargo's registry. The facade's folder is `accelerator` in the repository and `accelerator-rs-0.1.0` in a
/// registry.
fn is_ours(filename: &str) -> bool {
    const CRATES: [&str; 5] = ["accelerator", "accelerator-rs", "accelerator-core", "accelerator-tracker", "backtrace"];
    let folders = || filename.split(['/', '\\']);
    folders().zip(folders().skip(1)).any(|(folder, inside)| {
        let version = |rest: &str| rest.strip_prefix('-').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
        let is = |name: &&str| folder.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || version(rest));
        inside == "src" && CRATES.iter().any(is)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_of_these_crates_are_recognized() {
        for ours in [
            "/x/crates/accelerator-core/src/alloc/mod.rs",
            "/x/registry/src/index/backtrace-0.3.77/src/backtrace/mod.rs",
            "C:\\x\\accelerator-rs-0.1.0\\src\\buffer.rs",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for others in [
            "/x/crates/accelerator-tracker/examples/train_mlp.rs",
            "/x/my-accelerator/src/main.rs",
            "/x/accelerator-app/src/main.rs",
            "/x/src/accelerator/mod.rs",
        ] {
            assert!(!is_ours(others), "{others}");
        }
    }
}
