use accelerator_tracker::Limits;
use clap::Args;

/// How a file is read.
#[derive(Args, Clone, Copy)]
pub(super) struct Reading {
    /// Read a file that you trust, whatever memory and space it takes. Without this option a line may have 1 MiB, the
    /// parts of a file that are held in memory may take 2 GiB, and a compressed file may decompress to 64 MiB or to 100
    /// times its size, whichever is more
    #[arg(long)]
    no_limits: bool,
}

impl Reading {
    pub(super) fn limits(self) -> Limits {
        if self.no_limits { Limits::NONE } else { Limits::default() }
    }
}
