//! Buffers that several processes use.
#![allow(unsafe_code)] // importing is unsafe

use std::mem;
use std::sync::Arc;

use super::{Buffer, Memory};
use crate::accelerator::Accelerator;
use crate::alloc::Allocation;
use crate::backend::Backend;
use crate::imported::Imported;
use crate::share::{MemoryHandle, SharedMemory, Source};
use crate::stream::Stream;
use crate::types::{Error, Result, SharingProblem};

/// Memory of several processes.
pub(super) enum Between<B: Backend> {
    /// Memory of this one, which others can import.
    Shared(Allocation<B>, SharedMemory),
    /// Memory of another one.
    Imported(Imported<B>),
}

impl<B: Backend> Between<B> {
    pub(super) fn allocation(&self) -> Option<&Allocation<B>> {
        match self {
            Self::Shared(allocation, _) => Some(allocation),
            Self::Imported(_) => None,
        }
    }
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
        let between = Some(Arc::new(Between::Imported(imported)));
        Ok(Buffer { accelerator: self, memory: Memory::Other { stream, between } })
    }
}

impl<B: Backend> Buffer<B> {
    /// Whether the memory is that of another process.
    pub fn is_imported(&self) -> bool {
        self.import().is_some()
    }

    pub(super) fn import(&self) -> Option<&Imported<B>> {
        match self.between() {
            Some(Between::Imported(imported)) => Some(imported),
            _ => None,
        }
    }

    fn between(&self) -> Option<&Between<B>> {
        match &self.memory {
            Memory::Private(_) => None,
            Memory::Other { between, .. } => between.as_deref(),
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
        let why = match (&self.memory, self.between()) {
            (Memory::Private(allocation), _) => {
                let shared = self.accelerator.allocator().share(allocation)?;
                return Ok(self.shared(shared));
            }
            (_, Some(Between::Shared(_, shared))) => return Ok(shared.handle().clone()),
            (_, Some(Between::Imported(_))) => "it belongs to another process, which can share it",
            (_, None) => "the buffer has no bytes",
        };
        Err(Error::Sharing { device: self.device(), problem: SharingProblem::Unsupported(why) })
    }

    /// Puts the allocation together with how it is shared, and returns the handle of that.
    fn shared(&mut self, shared: SharedMemory) -> MemoryHandle {
        let handle = shared.handle().clone();
        let stream = self.stream();
        let memory = mem::replace(&mut self.memory, Memory::Other { stream, between: None });
        if let Memory::Private(allocation) = memory {
            let between = Some(Arc::new(Between::Shared(allocation, shared)));
            self.memory = Memory::Other { stream, between };
        }
        handle
    }

    /// The number of processes' imports of this buffer that exist now. A process that ends ends its imports, sooner or
    /// later.
    pub fn imports(&self) -> usize {
        match self.between() {
            Some(Between::Shared(_, shared)) => shared.imports(),
            _ => 0,
        }
    }

    /// Ends the sharing of a buffer that is being dropped. Its memory is freed when nobody imports it any more.
    #[cold]
    #[inline(never)]
    pub(super) fn withdraw(&mut self) {
        if let Memory::Other { between, .. } = &mut self.memory
            && let Some(Between::Shared(allocation, shared)) = between.take().and_then(Arc::into_inner)
        {
            let memory = Memory::Private(allocation);
            shared.withdraw(Box::new(Self { accelerator: self.accelerator, memory }));
        }
    }
}
