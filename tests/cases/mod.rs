//! Runs a property on random inputs. A failing input is shrunk and written in full to a file: in the test's output it
//! would be hard to find after all the shrinking attempts, and might be truncated.
//!
//! | environment variable | meaning |
//! |---|---|
//! | `ACCELERATOR_PROPERTY_FACTOR` | multiplies the number of inputs of each property |
//! | `PROPTEST_CASES` | the number of inputs of each property, whatever the factor |
//! | `PROPTEST_MAX_SHRINK_ITERS` | how often a failing input is made smaller at most, 0 for never |
//! | `PROPTEST_RNG_SEED` | the seed for generating inputs |
//! | `ACCELERATOR_PROPERTY_FAILURES` | the folder for failing inputs, instead of `target/property-failures` |

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proptest::prelude::Rng;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

/// Runs the property on `cases` random inputs, unless an environment variable sets another number.
///
/// # Panics
/// If the property panics for an input. The message names the file with the input.
pub(crate) fn check<S: Strategy>(name: &str, cases: u32, inputs: S, property: impl Fn(&S::Value)) {
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("property-failures");
    let folder = std::env::var_os("ACCELERATOR_PROPERTY_FAILURES").map_or_else(default, PathBuf::from);
    check_in(&folder, name, cases, inputs, property);
}

/// Like [`check`], with another folder for a failing input. A file from an earlier run is removed.
pub(crate) fn check_in<S: Strategy>(folder: &Path, name: &str, cases: u32, inputs: S, property: impl Fn(&S::Value)) {
    let file = folder.join(format!("{}.txt", name.replace("::", ".")));
    let _ = std::fs::remove_file(&file); // usually there is none
    let config = config(cases);
    let again = format!("PROPTEST_RNG_SEED={} PROPTEST_CASES={}", config.rng_seed, config.cases);
    // When the shrinking budget runs out, the runner may stop at an input that does not fail.
    let last_failing = RefCell::new(String::new());
    let result = TestRunner::new(config).run(&inputs, |input| {
        catch_unwind(AssertUnwindSafe(|| property(&input))).unwrap_or_else(|panic| {
            last_failing.replace(format!("{input:#?}"));
            resume_unwind(panic)
        });
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{reason}"),
        Err(TestError::Fail(reason, _)) => {
            let input = last_failing.take();
            write(&file, &format!("{name}: {reason}\nThe same inputs again: {again}\n\n{input}\n"));
            panic!("{reason}\nThe input is in {}, shrunk and in full", file.display());
        }
    }
}

fn config(cases: u32) -> Config {
    let factor = variable("ACCELERATOR_PROPERTY_FACTOR").unwrap_or(1);
    let seed = variable("PROPTEST_RNG_SEED").unwrap_or_else(|| TestRunner::default().rng().next_u64());
    Config {
        cases: variable("PROPTEST_CASES").unwrap_or(cases * factor),
        rng_seed: RngSeed::Fixed(seed),
        // Proptest would store seeds in files among the sources. A seed changes meaning with every change of a
        // strategy, so a failing input becomes a separate test instead.
        failure_persistence: None,
        // The default of four per case is too few for slow properties, which have few cases.
        max_shrink_iters: variable("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(20_000),
        max_shrink_time: 60_000, // milliseconds
        ..Config::default()
    }
}

fn variable<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error:?}")))
}

fn write(file: &Path, text: &str) {
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| std::fs::write(file, text));
    written.unwrap_or_else(|error| panic!("{}: {error}\n{text}", file.display()));
}
