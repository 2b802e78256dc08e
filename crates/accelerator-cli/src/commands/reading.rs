use accelerator_tracker::Limits;
use clap::Args;

/// How to read a file.
#[derive(Args, Clone, Copy)]
pub(super) struct Reading {
    /// Read a trusted file without limits on memory and size
    ///
    /// By default, a line may be up to 1 MiB long, the contents may need up to 2 GiB of memory at once, and a
    /// compressed file may decompress to 64 MiB or to 100 times its size, whichever is more.
    #[arg(long)]
    no_limits: bool,
}

impl Reading {
    pub(super) fn limits(self) -> Limits {
        if self.no_limits { Limits::NONE } else { Limits::default() }
    }
}
