//! Buffers that several processes use.
#![allow(unsafe_code)] // importing is unsafe

use super::Buffer;
use crate::accelerator::Accelerator;
use crate::backend::Backend;
use crate::imported::Imported;
use crate::share::{MemoryHandle, SharedMemory, Source};
use crate::stream::Stream;
use crate::types::{Error, Result, SharingProblem};

/// What a buffer has to do with other processes.
pub(super) enum Between<B: Backend> {
    /// They can import it.
    Shared(SharedMemory),
    /// It is memory of another process.
    Imported(Imported<B>),
}

impl<B: Backend> Accelerator<B> {
    /// Makes a buffer of memory that another process [shares](Buffer::share), for work on `stream`. It counts in none
    /// of this process's statistics.
    ///
    /// The memory stays allocated as long as the buffer exists, even if the other process drops its buffer or ends.
    /// Dropping the buffer waits for the streams that use it. A forked child must not use it.
    ///
    /// # Errors
    /// * [`Error::Sharing`] if the memory is not shared any more, belongs to another device, or is that of this
    ///   process, or if the other process has ended.
    /// * [`Error::DeviceMismatch`] for a stream of another device.
    /// * [`Error::Driver`].
    ///
    /// # Safety
    /// * Other processes do not write bytes of the memory, nor read what this one writes, at the same time: the
    ///   programs order their work, as they order that of two streams.
    /// * If this process imports the same memory several times, the same applies to these buffers, and no call gets two
    ///   of them.
    /// * The process that the handle comes from is trusted: it says what is behind the handle.
    pub unsafe fn import(&'static self, handle: &MemoryHandle, stream: Stream<B>) -> Result<Buffer<B>> {
        self.imported(&Source::Handle(handle), stream)
    }

    /// As [`import`](Self::import), with a handle that another process [sends](MemoryHandle::send) over this Unix
    /// socket. Waits for it, unless the socket is non-blocking.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    ///
    /// # Safety
    /// As for [`import`](Self::import).
    #[cfg(target_os = "linux")]
    pub unsafe fn import_from(&'static self, socket: impl std::os::fd::AsFd, stream: Stream<B>) -> Result<Buffer<B>> {
        self.imported(&Source::Socket(socket.as_fd()), stream)
    }

    fn imported(&'static self, source: &Source<'_>, stream: Stream<B>) -> Result<Buffer<B>> {
        stream.check(self.instance())?;
        let imported = Imported::new(self, source, stream)?;
        let len = imported.len();
        let between = Some(Box::new(Between::Imported(imported)));
        Ok(Buffer { accelerator: self, stream, allocation: None, between, len })
    }
}

impl<B: Backend> Buffer<B> {
    /// Whether the memory is that of another process.
    pub fn is_imported(&self) -> bool {
        self.import().is_some()
    }

    pub(super) fn import(&self) -> Option<&Imported<B>> {
        match self.between.as_deref() {
            Some(Between::Imported(imported)) => Some(imported),
            _ => None,
        }
    }

    /// Lets other processes [import](Accelerator::import) the buffer, with this handle. Each of them also gets access
    /// to what else is in the same segment, or in the same pages. On the host, the segment moves to other pages: no
    /// other library may access its memory during the call. CUDA: `cuIpcGetMemHandle`, `cuMemExportToShareableHandle`.
    ///
    /// The handle is valid until the buffer is dropped. The memory is freed only when no process imports it any more.
    /// Until then, its pool cannot be [paused](crate::MemPool::pause).
    ///
    /// # Errors
    /// [`Error::Sharing`] if the buffer cannot be shared, has no bytes, or is imported; [`Error::MemPool`] if it is
    /// paused; [`Error::Driver`].
    pub fn share(&mut self) -> Result<MemoryHandle> {
        if let Some(Between::Shared(shared)) = self.between.as_deref() {
            return Ok(shared.handle().clone());
        }
        let unsupported = |why| Error::Sharing { device: self.device(), problem: SharingProblem::Unsupported(why) };
        let allocation = self.allocation.as_ref().ok_or_else(|| match self.is_imported() {
            true => unsupported("it belongs to another process, which can share it"),
            false => unsupported("the buffer has no bytes"),
        })?;
        let shared = self.accelerator.allocator().share(allocation)?;
        let handle = shared.handle().clone();
        self.between = Some(Box::new(Between::Shared(shared)));
        Ok(handle)
    }

    /// The number of processes' imports of this buffer that exist now. A process that ends ends its imports, sooner or
    /// later.
    pub fn imports(&self) -> usize {
        match self.between.as_deref() {
            Some(Between::Shared(shared)) => shared.imports(),
            _ => 0,
        }
    }
}
