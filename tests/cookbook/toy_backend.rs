use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::time::Instant;

use accelerator_core::backend_kit::{Accounting, byte_count, lock, nanoseconds_between};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DevicePtr, DriverError,
    DriverErrorKind, DriverResult, EventFlags, GIB, MemoryInfo, Place, StreamKind, Unavailable,
};

const CAPACITY: u64 = GIB;
const ALIGNMENT: usize = 16;

/// A device that uses the memory of the process, and whose streams do all work at once.
#[derive(Debug)]
pub struct Toy {
    properties: DeviceProperties,
    accounting: Accounting,
    work: Mutex<()>,
}

/// A location in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToyPtr(usize);

#[derive(Debug)]
pub struct ToyStream;

/// When it was recorded last.
#[derive(Debug, Default)]
pub struct ToyEvent(Mutex<Option<Instant>>);

impl DevicePtr for ToyPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes as usize)
    }

    fn trace_address(self) -> u64 {
        self.0 as u64
    }
}

// SAFETY: `alloc` returns memory of Rust's allocator, which overlaps no other and stays where it is until `dealloc`.
// All work is done when it is submitted, so streams and events are always in order, and no work is left when memory
// is given back. Nothing here panics or calls the core.
unsafe impl Backend for Toy {
    const KIND: DeviceKind = DeviceKind::new("toy");
    type Ptr = ToyPtr;
    type Stream = ToyStream;
    type Event = ToyEvent;

    fn probe() -> Result<u32, Unavailable> {
        Ok(1) // a driver's: how many devices there are, or why none
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        if ordinal != 0 {
            let why = "no device has this number";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", why));
        }
        let mut properties = DeviceProperties::new("Toy", CAPACITY);
        properties.driver = "none".to_owned();
        properties.alignment = ALIGNMENT as u64;
        Ok(Self { properties, accounting: Accounting::new(CAPACITY), work: Mutex::default() })
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(self.accounting.memory_info())
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<ToyStream> {
        Ok(ToyStream)
    }

    fn synchronize(&self, _stream: &ToyStream) -> DriverResult<()> {
        Ok(())
    }

    fn is_idle(&self, _stream: &ToyStream) -> DriverResult<bool> {
        Ok(true)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<ToyEvent> {
        flags.refuse_interprocess("event")?;
        Ok(ToyEvent::default())
    }

    fn record(&self, event: &ToyEvent, _stream: &ToyStream) -> DriverResult<()> {
        *lock(&event.0) = Some(Instant::now());
        Ok(())
    }

    fn wait(&self, _stream: &ToyStream, _event: &ToyEvent) -> DriverResult<()> {
        Ok(())
    }

    fn is_complete(&self, _event: &ToyEvent) -> DriverResult<bool> {
        Ok(true)
    }

    fn elapsed_ns(&self, start: &ToyEvent, end: &ToyEvent) -> DriverResult<i64> {
        let reached = |event: &ToyEvent| *lock(&event.0); // one lock at a time: the two may be the same event
        let (Some(start), Some(end)) = (reached(start), reached(end)) else { return Ok(0) };
        Ok(nanoseconds_between(start, end))
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<ToyPtr> {
        let full = DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "out of memory");
        self.accounting.alloc(len.get(), full, || {
            let layout = layout(len).ok_or(full)?;
            // SAFETY: The layout has a size other than 0.
            let start = unsafe { alloc_zeroed(layout) };
            if start.is_null() { Err(full) } else { Ok(ToyPtr(start.expose_provenance())) }
        })
    }

    unsafe fn dealloc(&self, ptr: ToyPtr, len: NonZeroU64) {
        if let Some(layout) = layout(len) {
            // SAFETY: The caller promises that both are those of one `alloc`.
            unsafe { dealloc(address(ptr), layout) };
            self.accounting.give_back(len.get());
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<ToyPtr>,
        src: Place<ToyPtr>,
        len: NonZeroU64,
        _stream: &ToyStream,
    ) -> DriverResult<()> {
        let (dst, src) = (place(dst)?, place(src)?);
        let _no_other_work = lock(&self.work);
        // SAFETY: The caller promises two valid ranges that do not overlap.
        unsafe { src.copy_to_nonoverlapping(dst, byte_count(len)) };
        Ok(())
    }

    unsafe fn fill(&self, dst: ToyPtr, value: u8, len: NonZeroU64, _stream: &ToyStream) -> DriverResult<()> {
        let _no_other_work = lock(&self.work);
        // SAFETY: The caller promises a range that is valid for writes.
        unsafe { address(dst).write_bytes(value, byte_count(len)) };
        Ok(())
    }
}

fn place(place: Place<ToyPtr>) -> DriverResult<*mut u8> {
    match place {
        Place::Device(ptr) => Ok(address(ptr)),
        Place::Host(ptr) => Ok(ptr.as_ptr()),
        _ => Err(DriverError::unknown_place("copy")),
    }
}

fn address(ptr: ToyPtr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(ptr.0)
}

fn layout(len: NonZeroU64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(len.get()).ok()?, ALIGNMENT).ok()
}
