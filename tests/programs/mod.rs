//! Programs that are the same on every simulated driver, and the code that runs them.

pub(crate) mod availability;
pub(crate) mod bytes;
pub(crate) mod caches;
pub(crate) mod endings;
pub(crate) mod everything;
pub(crate) mod failing;
pub(crate) mod failures;
pub(crate) mod parity;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod simulated;
pub(crate) mod sleep;
pub(crate) mod suite;
pub(crate) mod surroundings;
pub(crate) mod virtual_memory;

use libtest_mimic::Trial;

/// Marks a trial that takes too long for a plain `cargo test`. `.ci/run` runs it, in release.
pub(crate) fn long(trial: Trial) -> Trial {
    trial.with_kind("long, runs with --ignored").with_ignored_flag(true)
}
