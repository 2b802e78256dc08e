//! Memory that other processes map: in-memory files.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{byte_count, lock};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult, Exported, Interprocess, Pages};

use crate::access::Touched;
use crate::host::Host;
use crate::memory::HostPtr;
use crate::process;
use crate::virtual_memory::{self, NOT_EXPORTED, Pager, refused};

/// The files of the memory of `alloc` that other processes can map.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<HashMap<HostPtr, Moved>>);

/// The file that has memory, once that is moved there.
type Moved = Arc<Mutex<Option<File>>>;

impl Files {
    /// Returns a descriptor of the file that has this memory, which is moved to one if it is not there yet.
    fn of(&self, start: HostPtr, moved: impl FnOnce() -> DriverResult<File>) -> DriverResult<File> {
        let known = Arc::clone(lock(&self.0).entry(start).or_default());
        let mut known = lock(&known); // held meanwhile, so that the memory is moved once
        let file = match &mut *known {
            Some(file) => file,
            none => none.insert(moved()?),
        };
        file.try_clone().map_err(|error| refused("fcntl", &error))
    }

    pub(crate) fn remove(&self, start: HostPtr) {
        drop(lock(&self.0).remove(&start));
    }

    /// Forgets all files, in a forked child.
    pub(crate) fn forget(&mut self) {
        process::forget(&mut self.0);
    }
}

impl Host {
    fn pager(&self) -> DriverResult<&Pager> {
        let none = "this system has no in-memory files";
        self.access.pager().ok_or(DriverError::refused(DriverErrorKind::Unsupported, "memfd_create", none))
    }

    /// Moves memory to a file, at the same addresses. Waits for the work that uses it now.
    ///
    /// # Safety
    /// * As for [`Interprocess::export`].
    unsafe fn move_to_file(&self, start: HostPtr, len: usize) -> DriverResult<File> {
        let file = virtual_memory::open().map_err(|error| refused("memfd_create", &error))?;
        file.set_len(len as u64).map_err(|error| refused("ftruncate", &error))?;
        let bytes = self.access.behind(&[Touched::new(start, len, true)]);
        self.access.run(&bytes, || {
            // SAFETY: The caller promises memory of `alloc`, which is initialised, and no other work on it runs now.
            let contents = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
            file.write_all_at(contents, 0).map_err(|error| refused("pwrite", &error))?;
            // SAFETY: As above. The mapping keeps its address and its bytes.
            unsafe { virtual_memory::map_shared(start, &file, 0, len) }
        })?;
        // A child that has the memory as well does no harm unless it writes there. SAFETY: The mapping was just made.
        let _ = unsafe { virtual_memory::hide_from_children(start, len) };
        Ok(file)
    }
}

// SAFETY: A mapped file stays as long as any process has it mapped, and has all of its bytes: it is sealed, so that no
// process can make it shorter.
unsafe impl Interprocess<HostPtr> for Host {
    unsafe fn export(&self, ptr: HostPtr, len: NonZeroU64) -> DriverResult<Exported> {
        self.health.check()?;
        self.pager()?;
        // SAFETY: The caller promises it.
        let file = self.memory.files.of(ptr, || unsafe { self.move_to_file(ptr, byte_count(len)) })?;
        Ok(Exported { bytes: Vec::new(), file: Some(file) })
    }

    fn import(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.pager()?.map_foreign(exported.file.as_ref().ok_or(NOT_EXPORTED)?, len)
    }

    unsafe fn close(&self, ptr: HostPtr, _len: NonZeroU64) {
        if let Ok(pager) = self.pager() {
            // SAFETY: The caller promises that no work uses it.
            unsafe { pager.unmap_foreign(ptr) }
        }
    }

    unsafe fn export_pages(&self, pages: &Pages) -> DriverResult<Exported> {
        let (file, offset) = self.pager()?.file_of(pages)?;
        Ok(Exported { bytes: offset.to_le_bytes().to_vec(), file: Some(file) })
    }

    fn import_pages(&self, exported: &Exported, len: NonZeroU64) -> DriverResult<Pages> {
        let file = exported.file.as_ref().ok_or(NOT_EXPORTED)?.try_clone().map_err(|error| refused("fcntl", &error))?;
        let offset = exported.bytes[..].try_into().map_err(|_| NOT_EXPORTED)?;
        self.pager()?.foreign(file, u64::from_le_bytes(offset), len)
    }
}
