use accelerator_core::{AllocatorConfig, Result};

use crate::failure::Failure;
use crate::trace::{Line, Op, Source};

/// The properties of a new device. They come from `capacity` and `conf` lines before all others, because an allocator
/// reads the size of its device, and some of its settings, when it is created.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The memory of the device in bytes, if given.
    pub capacity: Option<u64>,
    /// The allocator's settings.
    pub config: AllocatorConfig,
}

impl Setup {
    /// Consumes the setup lines of the trace. Returns the first other line.
    ///
    /// # Errors
    /// [`Failure::Source`], or [`Failure::Line`] for invalid settings.
    pub fn take_from(&mut self, lines: &mut Source) -> Result<Option<Line>, Failure> {
        let trace = lines.name().to_owned();
        for line in lines {
            let line = line?;
            match &line.op {
                Op::Capacity { bytes } => self.capacity = Some(*bytes),
                Op::Conf { settings } => {
                    let updated = self.config.updated(settings);
                    self.config = updated.map_err(|error| Failure::in_line(&trace, line.number, error))?;
                }
                _ => return Ok(Some(line)),
            }
        }
        Ok(None)
    }
}
