//! Memory of other processes: ranges of their files.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Pages};

use super::{Pager, refused, whole_pages};
use crate::memory::HostPtr;

/// Memory of other processes. Their handles are higher than any offset in a file.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    pub(super) pages: HashMap<u64, (File, u64)>,
    made: u64,
}

/// The first handle of memory of another process.
pub(super) const FOREIGN: u64 = 1 << 63;

impl Pager {
    /// Maps a range of a file of another process, of `len` bytes, and returns its start.
    pub(crate) fn map_foreign(&self, file: &File, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.health.check()?;
        check_len(file, len.get())?;
        let start = self.space.reserve(len)?;
        // SAFETY: The range was just reserved, and nothing uses it.
        let mapped = unsafe { self.map_file(start, file, 0, len) };
        mapped.inspect_err(|_| self.space.release(start))?;
        Ok(start)
    }

    /// Removes what [`map_foreign`](Self::map_foreign) mapped.
    ///
    /// # Safety
    /// * No work uses it.
    pub(crate) unsafe fn unmap_foreign(&self, start: HostPtr) {
        if !self.health.is_forked() {
            self.mappings().remove(&start.as_ptr().addr());
            self.space.release(start);
        }
    }

    /// Returns the file that contains memory of `create`, and the offset there.
    pub(crate) fn file_of(&self, pages: &Pages) -> DriverResult<(File, u64)> {
        self.health.check()?;
        let file = self.file()?.try_clone().map_err(|error| refused("fcntl", &error))?;
        Ok((file, pages.handle))
    }

    /// Makes memory of a range of a file of another process.
    pub(crate) fn foreign(&self, file: File, offset: u64, len: NonZeroU64) -> DriverResult<Pages> {
        self.health.check()?;
        whole_pages(len)?;
        check_len(&file, offset.saturating_add(len.get()))?;
        let mut foreign = lock(&self.foreign);
        let handle = FOREIGN + foreign.made;
        foreign.made += 1;
        foreign.pages.insert(handle, (file, offset));
        Ok(Pages::new(handle, len))
    }
}

/// Fails unless a file that another process made has this many bytes, and keeps them: access beyond its end would end
/// this process.
fn check_len(file: &File, len: u64) -> DriverResult<()> {
    // SAFETY: The call reads the seals. Files of other kinds have none, and it fails for them.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let stays = seals >= 0 && seals & libc::F_SEAL_SHRINK != 0;
    let there = file.metadata().map_err(|error| refused("fstat", &error))?.len();
    if stays && len <= there { Ok(()) } else { Err(NOT_EXPORTED) }
}

pub(crate) const NOT_EXPORTED: DriverError =
    DriverError::refused(DriverErrorKind::InvalidArgument, "mmap", "not memory that another process exported");
