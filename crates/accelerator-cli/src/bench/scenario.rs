use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// What to repeat. Each repetition counts as one operation, unless the text says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Scenario {
    /// Allocate 512 bytes and free them
    Small,
    /// Allocate 4 MiB and free them
    Large,
    /// 64 allocations of 512 bytes to 64 MiB, then 64 frees in reverse order; each pair is one operation
    Lifo,
    /// With 4096 live allocations of 512 bytes to 32 MiB, free a random one and make another
    Random,
    /// Allocate 512 bytes, record their use on a second stream, free them
    Xstream,
    /// Like small, but all threads share one stream
    Shared,
    /// Read the statistics
    Stats,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}
