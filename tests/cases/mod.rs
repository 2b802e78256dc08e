//! Runs a property on random inputs. One that it does not hold for is made as small as can be and written whole to a file: on the
//! screen it is lost among the output of all the attempts at making it smaller, or cut.
//!
//! | variable | what it says |
//! |---|---|
//! | `PROPTEST_CASES` | how many inputs each property is run on |
//! | `ACCELERATOR_PROPERTY_FACTOR` | how many times as many as it is by default; `PROPTEST_CASES` goes before |
//! | `PROPTEST_RNG_SEED` | the seed, to have the same inputs again |
//! | `ACCELERATOR_PROPERTY_FAILURES` | the folder of the files, if not `property-failures` in cargo's target folder |

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proptest::prelude::Rng;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, Reason, RngSeed, TestError, TestRunner};

/// As [`check_named`], under the name of the test that runs, which its thread has from the standard harness.
pub(crate) fn check<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value)) {
    let thread = std::thread::current();
    check_named(thread.name().unwrap(), cases, inputs, property);
}

/// Runs the property on so many inputs by default.
///
/// # Panics
/// With the file that has the input, if it panics for one.
pub(crate) fn check_named<S: Strategy>(name: &str, cases: u32, inputs: S, property: impl Fn(S::Value)) {
    let Err((failure, input)) = try_all(cases, &inputs, property) else { return };
    let file = folder().join(format!("{}.txt", name.replace("::", ".")));
    write(&file, &format!("{name}: {failure}\n\n{input}\n"));
    panic!("{failure}\nThe smallest input found is whole in {}.", file.display());
}

/// What went wrong, and the input.
fn try_all<S: Strategy>(cases: u32, inputs: &S, property: impl Fn(S::Value)) -> Result<(), (String, String)> {
    let cases =
        variable("PROPTEST_CASES").unwrap_or(cases * variable("ACCELERATOR_PROPERTY_FACTOR").unwrap_or(1));
    let seed = variable("PROPTEST_RNG_SEED").unwrap_or_else(|| TestRunner::default().rng().next_u64());
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        // Seeds in the source tree would hold for the strategies of today only: an input that failed becomes a test of its own.
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000, // ms
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(inputs, |input| {
        property(input);
        Ok(())
    });
    let why = |reason: Reason| {
        format!("{reason}\nTo run it again: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}.")
    };
    result.map_err(|error| match error {
        TestError::Fail(reason, input) => (why(reason), format!("{input:#?}")),
        TestError::Abort(reason) => (why(reason), String::new()),
    })
}

fn variable<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error:?}")))
}

fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("property-failures");
    std::env::var_os("ACCELERATOR_PROPERTY_FAILURES").map_or_else(default, PathBuf::from)
}

fn write(file: &Path, text: &str) {
    let written =
        file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(file, text));
    written.unwrap_or_else(|error| panic!("{}: {error}\n{text}", file.display()));
}
