//! The conformance suite on this backend.

use std::process::ExitCode;

use accelerator_conformance::Suite;
use sample_backend::Sample;

fn main() -> ExitCode {
    Suite::<Sample>::new("sample").main()
}
