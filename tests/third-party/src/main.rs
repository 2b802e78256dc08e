//! `accel`, with this backend beside the built-in ones.

use std::process::ExitCode;

use accelerator_cli::{Backends, Offered};
use sample_backend::{Sample, saxpy};

fn main() -> ExitCode {
    let sample = Offered::<Sample>::new().about("A sample device with threads as streams").kernel(saxpy);
    Backends::built_in().with(sample).main()
}
