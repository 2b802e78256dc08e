//! Memory of another process, mapped here.
#![allow(unsafe_code)] // `Interprocess` and `VirtualMemory`

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use crate::accelerator::Accelerator;
use crate::backend::Backend;
use crate::interprocess::Interprocess;
use crate::share::{Connection, Description, Form, Source, open};
use crate::stream::Stream;
use crate::sync::lock;
use crate::types::{DevicePtr, DriverError, DriverErrorKind, DriverResult, Error, Result, SharingProblem, StreamId};
use crate::virtual_memory::{Pages, VirtualMemory};

/// Imported memory. Dropping it waits for the streams that use it, unmaps it, and tells its process. If one of them
/// captures, that is done after the capture.
#[derive(Debug)]
pub(crate) struct Imported<B: Backend> {
    accelerator: &'static Accelerator<B>,
    ptr: B::Ptr,
    len: u64,
    /// The streams that may have work on it.
    users: Mutex<BTreeSet<StreamId>>,
    /// Dropped in this order: the memory is unmapped before its process learns that.
    mapped: Option<(Arc<Mapped<B>>, Connection)>,
}

/// Memory at addresses of this process, for all imports of it.
#[derive(Debug)]
enum Mapped<B: Backend> {
    Segment { backend: &'static B, ptr: B::Ptr, len: NonZeroU64 },
    Pages(MappedPages<B>),
}

/// Pages, mapped one after another.
#[derive(Debug)]
struct MappedPages<B: Backend> {
    backend: &'static B,
    at: B::Ptr,
    len: NonZeroU64,
    /// The pages, and how many of them are mapped.
    pages: Vec<Pages>,
    mapped: usize,
}

impl<B: Backend> Imported<B> {
    pub(crate) fn new(accelerator: &'static Accelerator<B>, source: &Source<'_>, stream: Stream<B>) -> Result<Self> {
        let device = accelerator.device();
        let refused = |problem| Error::Sharing { device, problem };
        let backend = accelerator.backend();
        let unsupported = || refused(SharingProblem::Unsupported("this backend has no memory between processes"));
        let between = backend.interprocess().ok_or_else(unsupported)?;
        let (connection, description) = open(source).map_err(refused)?;
        if !description.is_of(device.kind, device.index, accelerator.properties().uuid) {
            let device = match description.uuid {
                Some(uuid) => format!("{}:{}, whose UUID is {uuid}", description.kind, description.ordinal),
                None => format!("{}:{}", description.kind, description.ordinal),
            };
            return Err(refused(SharingProblem::OtherDevice { device }));
        }
        let name = [connection.server(), &description.name()].concat();
        let mapped = accelerator.unique_or(name, || Mapped::new(backend, between, &description));
        let mapped = mapped.map_err(|error: DriverError| match error.kind {
            DriverErrorKind::Unsupported => refused(SharingProblem::Unsupported(error.name)),
            _ => Error::Driver { device, source: error },
        })?;
        let ptr = mapped.start().offset(description.offset);
        let users = Mutex::new(BTreeSet::from([stream.id()]));
        Ok(Self { accelerator, ptr, len: description.len, users, mapped: Some((mapped, connection)) })
    }

    pub(crate) fn ptr(&self) -> B::Ptr {
        self.ptr
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Notes that a stream of the device uses the memory.
    pub(crate) fn record_use(&self, stream: Stream<B>) {
        lock(&self.users).insert(stream.id());
    }
}

impl<B: Backend> Drop for Imported<B> {
    fn drop(&mut self) {
        let (accelerator, mut mapped) = (self.accelerator, self.mapped.take());
        let users = std::mem::take(&mut *lock(&self.users));
        accelerator.allocator().do_after_captures(move || {
            let mut streams = users.iter().filter_map(|id| accelerator.stream_by_id(*id));
            let is_unused = streams.all(|stream| wait_unless_capturing(accelerator.backend(), stream));
            if is_unused {
                drop(mapped.take());
            }
            is_unused
        });
    }
}

/// Waits for the work of a stream, unless it captures: a wait would break the capture. Returns whether no work is left.
fn wait_unless_capturing<B: Backend>(backend: &B, stream: Stream<B>) -> bool {
    let is_capturing = || matches!(backend.is_capturing(stream.native()), Ok(true));
    if is_capturing() {
        return false;
    }
    match backend.synchronize(stream.native()) {
        Ok(()) => true,
        Err(error) if error.kind == DriverErrorKind::DeviceLost => true,
        // Work may be left, also because a capture has just begun.
        Err(_) => !is_capturing() && matches!(backend.is_idle(stream.native()), Ok(true)),
    }
}

impl<B: Backend> Mapped<B> {
    fn new(backend: &'static B, between: &dyn Interprocess<B::Ptr>, description: &Description) -> DriverResult<Self> {
        match (&description.pieces[..], description.form) {
            ([segment], Form::Segment) => {
                let len = NonZeroU64::new(segment.len).unwrap_or(NonZeroU64::MIN);
                Ok(Self::Segment { backend, ptr: between.import(&segment.export.exported, len)?, len })
            }
            _ => MappedPages::new(backend, between, description).map(Self::Pages),
        }
    }

    fn start(&self) -> B::Ptr {
        match self {
            Self::Segment { ptr, .. } => *ptr,
            Self::Pages(pages) => pages.at,
        }
    }
}

impl<B: Backend> Drop for Mapped<B> {
    fn drop(&mut self) {
        if let Self::Segment { backend, ptr, len } = self
            && let Some(between) = backend.interprocess()
        {
            // SAFETY: The memory comes from one `import` and is closed once. `Imported` has waited for the work on it.
            unsafe { between.close(*ptr, *len) }
        }
    }
}

impl<B: Backend> MappedPages<B> {
    fn new(backend: &'static B, between: &dyn Interprocess<B::Ptr>, description: &Description) -> DriverResult<Self> {
        let memory = virtual_memory(backend)?;
        let (granularity, pieces) = (memory.granularity().get(), &description.pieces);
        let lens =
            pieces.iter().map(|piece| NonZeroU64::new(piece.len).filter(|len| len.get().is_multiple_of(granularity)));
        let lens: Option<Vec<NonZeroU64>> = lens.collect();
        let lens = lens.ok_or(WRONG_LENGTH)?;
        let total = lens.iter().try_fold(0, |sum: u64, len| sum.checked_add(len.get()));
        let len = total.and_then(NonZeroU64::new).ok_or(WRONG_LENGTH)?;
        let at = memory.reserve(len)?;
        let mut all = Self { backend, at, len, pages: Vec::with_capacity(lens.len()), mapped: 0 };
        let mut offset = 0;
        for (piece, len) in pieces.iter().zip(lens) {
            let pages = between.import_pages(&piece.export.exported, len)?;
            all.pages.push(pages);
            let Some(pages) = all.pages.last() else { continue };
            // SAFETY: The range follows the pages before it in the reservation, where nothing else is mapped.
            unsafe { memory.map(at.offset(offset), pages) }?;
            all.mapped += 1;
            offset += len.get();
        }
        Ok(all)
    }
}

impl<B: Backend> Drop for MappedPages<B> {
    fn drop(&mut self) {
        let Ok(memory) = virtual_memory(self.backend) else { return };
        let (mut offset, mut is_unmapped) = (0, true);
        for (number, pages) in self.pages.drain(..).enumerate() {
            let len = pages.len;
            // SAFETY: These are one whole mapping. `Imported` has waited for the work on it, or it was never used.
            let unmapped = number >= self.mapped || unsafe { memory.unmap(self.at.offset(offset), len) }.is_ok();
            if unmapped {
                // SAFETY: `import_pages` returned the pages, and they are mapped nowhere.
                unsafe { memory.destroy(pages) };
            }
            is_unmapped &= unmapped;
            offset += len.get();
        }
        if is_unmapped {
            // SAFETY: The reservation is as `reserve` returned it, with nothing mapped there.
            unsafe { memory.release(self.at, self.len) };
        }
    }
}

const WRONG_LENGTH: DriverError =
    DriverError::refused(DriverErrorKind::InvalidArgument, "import", "pages of this length do not exist here");

fn virtual_memory<B: Backend>(backend: &'static B) -> DriverResult<&'static dyn VirtualMemory<B::Ptr>> {
    let none = "this device has no virtual memory, which the shared memory needs";
    let none = DriverError::refused(DriverErrorKind::Unsupported, "import", none);
    backend.virtual_memory().ok_or(none)
}
