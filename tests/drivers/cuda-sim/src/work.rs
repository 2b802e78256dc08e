//! What streams do when its turn comes.

use std::ffi::c_void;

use crate::code::Code;
use crate::kernel::Launch;
use crate::resolve::{self, Span, Toucher};
use crate::scheduler::Position;
use crate::state::{Driver, Handle};

/// Pageable host memory that the program lends until the call that named it returns.
pub(crate) struct Lent(pub(crate) *mut u8);

// SAFETY: whichever thread runs the work, the lender's call has not returned.
unsafe impl Send for Lent {}

pub(crate) enum Source {
    /// Of a device, or pinned: read when the work runs.
    Memory(u64),
    /// Taken from pageable memory at the call.
    Snapshot(Vec<u8>),
}

pub(crate) enum Target {
    /// Of a device, or pinned.
    Memory(u64),
    Pageable(Lent),
}

/// What `cuLaunchHostFunc` is given.
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

// SAFETY: the driver API lets the function run on any thread, with what it was given.
unsafe impl Send for HostFunction {}

pub(crate) enum Work {
    /// Only comes after what it waits for.
    Nothing,
    Copy {
        target: Target,
        source: Source,
        bytes: u64,
    },
    Fill {
        address: u64,
        value: u8,
        bytes: u64,
    },
    Kernel(Launch),
    HostFunction(HostFunction),
    /// Reaches the mark of an event.
    Record(Handle),
    /// Frees an allocation.
    Free(u64),
}

/// Work that went wrong: the error that its context has from now on, and what happened.
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Work {
    /// Memory that it will touch, by address and bytes.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Copy { target, source, bytes } => {
                let to = if let Target::Memory(address) = target { Some((*address, *bytes)) } else { None };
                let from = if let Source::Memory(address) = source { Some((*address, *bytes)) } else { None };
                to.into_iter().chain(from).collect()
            }
            Self::Fill { address, bytes, .. } => vec![(*address, *bytes)],
            Self::Kernel(launch) => launch.ranges(),
            Self::Nothing | Self::HostFunction(_) | Self::Record(_) | Self::Free(_) => Vec::new(),
        }
    }

    /// Virtual nanoseconds that it takes.
    pub(crate) fn duration(&self) -> u64 {
        match self {
            // Sixteen bytes a nanosecond.
            Self::Copy { bytes, .. } | Self::Fill { bytes, .. } => 1_000 + bytes / 16,
            Self::Kernel(launch) => launch.duration(),
            Self::Nothing | Self::Record(_) => 100,
            Self::HostFunction(_) | Self::Free(_) => 1_000,
        }
    }
}

impl Driver {
    /// Does one operation of a stream. Host functions are not among those: they run without the lock.
    pub(crate) fn perform(&mut self, at: Position, device: usize, work: Work) -> Result<(), Fault> {
        let copies = Toucher { device, kernel: false };
        let is_direct = self.reaches(device, &work.ranges());
        match work {
            Work::Nothing | Work::HostFunction(_) => Ok(()),
            Work::Copy { target, source, bytes } => {
                self.copy(copies, &target, &source, bytes)?;
                self.staged_copies += u64::from(!is_direct);
                Ok(())
            }
            Work::Fill { address, value, bytes } => {
                let spans = self.touch(copies, "a fill", true, address, bytes)?;
                resolve::fill(&spans, value);
                Ok(())
            }
            Work::Kernel(launch) => self.run_kernel(device, &launch),
            Work::Record(event) => {
                let clock = self.clock;
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.recorded == Some(at)) {
                    event.time = Some(clock);
                }
                Ok(())
            }
            Work::Free(address) => {
                self.release_memory(address);
                Ok(())
            }
        }
    }

    fn copy(&self, toucher: Toucher, target: &Target, source: &Source, bytes: u64) -> Result<(), Fault> {
        let to = match target {
            Target::Memory(address) => Some(self.touch(toucher, "a copy", true, *address, bytes)?),
            Target::Pageable(_) => None,
        };
        let from = match source {
            Source::Memory(address) => Some(self.touch(toucher, "a copy", false, *address, bytes)?),
            Source::Snapshot(_) => None,
        };
        match (to, target, from, source) {
            (Some(to), _, Some(from), _) => resolve::copy(&to, &from),
            (Some(to), _, _, Source::Snapshot(taken)) => resolve::write(&to, taken),
            (_, Target::Pageable(Lent(to)), Some(from), _) => resolve::copy_out(&from, *to),
            (_, Target::Pageable(Lent(to)), _, Source::Snapshot(taken)) => {
                // SAFETY: the lender has room for as many bytes as it named, and its call has not returned.
                unsafe { to.copy_from(taken.as_ptr(), taken.len()) };
            }
            (None, Target::Memory(_), ..) | (.., None, Source::Memory(_)) => {}
        }
        Ok(())
    }

    /// Whether a device reaches memory by itself, as its kernels do.
    fn reaches(&self, device: usize, ranges: &[(u64, u64)]) -> bool {
        let itself = Toucher { device, kernel: true };
        ranges.iter().all(|(address, bytes)| self.resolve(itself, false, *address, *bytes).is_ok())
    }

    /// The pieces of a range for work that may touch it; otherwise an illegal address, for good.
    pub(crate) fn touch(
        &self,
        toucher: Toucher,
        who: &str,
        write: bool,
        address: u64,
        bytes: u64,
    ) -> Result<Vec<Span>, Fault> {
        self.resolve(toucher, write, address, bytes).map_err(|what| {
            let verb = if write { "writes" } else { "reads" };
            let text =
                format!("{who} on device {} {verb} {bytes} bytes at {address:#x}: {what}", toucher.device);
            Fault { code: Code::ILLEGAL_ADDRESS, text }
        })
    }
}
