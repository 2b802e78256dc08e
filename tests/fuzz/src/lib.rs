//! What is fuzzed, and what must hold for every input. A target is a function that takes the bytes of an input, and
//! panics if something is wrong. A panic, more memory than the limit, or too much time is a finding.

// Read by `tests/limits.rs`, too.
#[allow(dead_code, unreachable_pub)]
#[path = "../../limits/counting.rs"]
mod counting;

pub mod compressed;
pub mod json_lines;
mod memory;
pub mod operations;
pub mod pickle;
mod profile;
mod saved;
pub mod settings;
pub mod snapshot;
mod text;
pub mod trace;
pub mod tracker_file;

#[global_allocator]
static MEMORY: counting::Counting = counting::Counting;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 8] = [
    ("settings", settings::run),
    ("trace", trace::run),
    ("compressed", compressed::run),
    ("pickle", pickle::run),
    ("snapshot", snapshot::run),
    ("tracker_file", tracker_file::run),
    ("json_lines", json_lines::run),
    ("operations", operations::run),
];
