//! What the operations of a lane do.

use crate::error::Fault;
use crate::face::Face;
use crate::host_function::HostFunction;
use crate::kernel::Launch;
use crate::resolve::{self, Span, Toucher};
use crate::session::Session;
use crate::signal::Signal;

/// Host memory that the program has promised to keep alive until the work is over.
#[derive(Clone, Copy, Debug)]
pub struct Lent(pub *mut u8);

// SAFETY: the program keeps the memory alive, whichever thread runs the work.
unsafe impl Send for Lent {}

/// Where a copy reads its bytes.
#[derive(Clone, Debug)]
pub enum Source {
    /// Device memory, or host memory of the driver, read when the work runs.
    Memory(u64),
    /// Bytes copied from the program's memory during the call.
    Snapshot(Vec<u8>),
    /// The program's memory, read when the work runs.
    Pageable(Lent),
}

/// Where a copy writes its bytes.
#[derive(Clone, Debug)]
pub enum Target {
    /// Device memory, or host memory of the driver.
    Memory(u64),
    /// The program's memory.
    Pageable(Lent),
}

/// What an operation does.
#[derive(Clone)]
pub enum Work {
    /// Nothing. It only waits for its conditions.
    Nothing,
    /// Copies bytes. Overlapping ranges are copied as if through a temporary buffer.
    Copy {
        /// Where to.
        target: Target,
        /// Where from.
        source: Source,
        /// How many.
        bytes: u64,
    },
    /// Fills memory with a repeated pattern, whose last copy may be cut short.
    Fill {
        /// Where.
        address: u64,
        /// At least one byte.
        pattern: Vec<u8>,
        /// How many.
        bytes: u64,
    },
    /// Runs a kernel.
    Kernel(Launch),
    /// Calls a function of the program, on its own thread and without the lock.
    HostFunction(HostFunction),
    /// Writes the time in eight bytes: [`Face::timestamp`] of the virtual clock.
    Timestamp {
        /// Where.
        address: u64,
    },
    /// Resets a signal. Any work can set one: [`Operation::sets`](crate::Operation).
    Reset(Signal),
    /// Frees an allocation of device memory.
    Free(u64),
}

impl Work {
    /// Creates a fill with one byte.
    pub fn fill(address: u64, value: u8, bytes: u64) -> Self {
        Self::Fill { address, pattern: vec![value], bytes }
    }

    /// Returns the driver's memory that it will touch, as address and bytes.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Copy { target, source, bytes } => {
                let to = if let Target::Memory(address) = target { Some((*address, *bytes)) } else { None };
                let from = if let Source::Memory(address) = source { Some((*address, *bytes)) } else { None };
                to.into_iter().chain(from).collect()
            }
            Self::Fill { address, bytes, .. } => vec![(*address, *bytes)],
            Self::Kernel(launch) => launch.ranges(),
            Self::Timestamp { address } => vec![(*address, 8)],
            Self::Nothing | Self::HostFunction(_) | Self::Reset(_) | Self::Free(_) => Vec::new(),
        }
    }

    /// Whether it will touch any part of a range.
    pub fn touches(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.ranges().iter().any(|(start, length)| *start < end && address < start.saturating_add(*length))
    }

    /// Returns how long it takes, in virtual nanoseconds.
    pub fn duration(&self) -> u64 {
        match self {
            // Sixteen bytes a nanosecond.
            Self::Copy { bytes, .. } | Self::Fill { bytes, .. } => 1_000 + bytes / 16,
            Self::Kernel(launch) => launch.duration(),
            Self::Nothing | Self::Timestamp { .. } | Self::Reset(_) => 100,
            Self::HostFunction(_) | Self::Free(_) => 1_000,
        }
    }
}

impl<F: Face> Session<F> {
    /// Performs work on a device. Host functions are excluded; they run without the lock.
    pub(crate) fn perform(&mut self, device: usize, work: Work) -> Result<(), Fault> {
        let copies = Toucher { device, kernel: false };
        match work {
            Work::Nothing | Work::HostFunction(_) => {}
            Work::Copy { ref target, ref source, bytes } => {
                self.copy(copies, target, source, bytes)?;
                let is_direct = self.reaches(device, &work.ranges());
                self.engine_mut().staged_copies += u64::from(!is_direct);
            }
            Work::Fill { address, pattern, bytes } => {
                let spans = self.touch(copies, "a fill", true, address, bytes)?;
                resolve::fill(&spans, &pattern);
            }
            Work::Kernel(launch) => self.run_kernel(device, &launch)?,
            Work::Timestamp { address } => {
                let spans = self.touch(copies, "a timestamp", true, address, 8)?;
                let time = self.timestamp(self.engine().clock);
                resolve::write(&spans, &time.to_ne_bytes());
            }
            Work::Reset(signal) => self.engine_mut().signals.reset(signal),
            Work::Free(address) => {
                // A double free was reported when the program called.
                let _ = self.engine_mut().free(address);
            }
        }
        Ok(())
    }

    fn copy(&self, toucher: Toucher, target: &Target, source: &Source, bytes: u64) -> Result<(), Fault> {
        let to = match target {
            Target::Memory(address) => self.touch(toucher, "a copy", true, *address, bytes)?,
            Target::Pageable(lent) => vec![Span::lent(*lent, bytes)],
        };
        match source {
            Source::Memory(address) => {
                resolve::copy(&to, &self.touch(toucher, "a copy", false, *address, bytes)?);
            }
            Source::Pageable(lent) => resolve::copy(&to, &[Span::lent(*lent, bytes)]),
            Source::Snapshot(taken) => resolve::write(&to, taken),
        }
        Ok(())
    }
}
