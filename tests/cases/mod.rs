//! Runs a property on random inputs. An input that it does not hold for is made as small as can be and written whole to a file: on
//! the screen it gets lost behind the output of the attempts that made it smaller, or is cut.
//!
//! | environment variable | meaning |
//! |---|---|
//! | `ACCELERATOR_PROPERTY_FACTOR` | each property is run on so many times the inputs that it is run on by default |
//! | `PROPTEST_CASES` | each property is run on so many inputs, whatever the factor |
//! | `PROPTEST_RNG_SEED` | the seed of the inputs, to have the same again |
//! | `ACCELERATOR_PROPERTY_FAILURES` | the folder of those files; without it, `property-failures` in cargo's target folder |

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proptest::prelude::Rng;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

/// Runs the property on random inputs, by default on so many.
///
/// # Panics
/// With the place of the file, if the property panics for one of them.
pub(crate) fn check<S: Strategy>(name: &str, cases: u32, inputs: S, property: impl Fn(S::Value)) {
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("property-failures");
    let folder = std::env::var_os("ACCELERATOR_PROPERTY_FAILURES").map_or_else(default, PathBuf::from);
    check_in(&folder, name, cases, inputs, property);
}

/// The same with the file in this folder. One from an earlier run goes.
pub(crate) fn check_in<S: Strategy>(
    folder: &Path,
    name: &str,
    cases: u32,
    inputs: S,
    property: impl Fn(S::Value),
) {
    let file = folder.join(format!("{}.txt", name.replace("::", ".")));
    let _ = std::fs::remove_file(&file); // mostly there is none
    let config = config(cases);
    let again = format!("PROPTEST_RNG_SEED={} PROPTEST_CASES={}", config.rng_seed, config.cases);
    let result = TestRunner::new(config).run(&inputs, |input| {
        property(input);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{reason}"),
        Err(TestError::Fail(reason, input)) => {
            write(&file, &format!("{name}: {reason}\nThe same inputs again: {again}\n\n{input:#?}\n"));
            panic!("{reason}\nThe smallest input that fails is in {}", file.display());
        }
    }
}

fn config(cases: u32) -> Config {
    let factor = variable("ACCELERATOR_PROPERTY_FACTOR").unwrap_or(1);
    let seed = variable("PROPTEST_RNG_SEED").unwrap_or_else(|| TestRunner::default().rng().next_u64());
    Config {
        cases: variable("PROPTEST_CASES").unwrap_or(cases * factor),
        rng_seed: RngSeed::Fixed(seed),
        // Files of seeds would lie among the sources, and lose their meaning with the next change of a strategy: an input that
        // has failed becomes a test of its own.
        failure_persistence: None,
        // By default, four times as many as there are cases, which is too few for the slow ones.
        max_shrink_iters: 20_000,
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
