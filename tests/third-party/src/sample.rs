use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Arc;

use accelerator_core::backend_kit::{Streams, byte_count, nanoseconds_between, read_variable};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, GIB, MIB,
    MemoryInfo, Place, StreamKind, Unavailable,
};

use crate::event::SampleEvent;
use crate::memory::{Memory, Range, SamplePtr};
use crate::stream::{Progress, SampleStream};

/// The environment variable for the number of devices.
const DEVICES: &str = "SAMPLE_DEVICES";
const CAPACITY: u64 = 8 * GIB;

/// A device.
#[derive(Debug)]
pub struct Sample {
    properties: DeviceProperties,
    pub(crate) memory: Memory,
    streams: Streams<Progress>,
}

impl Sample {
    /// Waits for all work, including that of streams that were dropped.
    fn finish(&self) {
        self.streams.alive().iter().for_each(|stream| stream.wait());
    }

    fn end(&self, call: &'static str, place: Place<SamplePtr>, len: usize) -> DriverResult<End> {
        match place {
            Place::Device(ptr) => self.memory.range(call, ptr, len).map(End::Device),
            Place::Host(start) => Ok(End::Host(Host { start, len })),
            _ => Err(DriverError::unknown_place(call)),
        }
    }
}

// SAFETY: Every allocation is a buffer of its own, which stays until the last work with it is done. The thread of a
// stream does its jobs in order, and waits for events within them. An event is reached after the work before it, under
// a lock that makes the effects visible. Nothing here panics or calls the core.
unsafe impl Backend for Sample {
    const KIND: DeviceKind = DeviceKind::new("sample");
    type Ptr = SamplePtr;
    type Stream = SampleStream;
    type Event = SampleEvent;

    fn probe() -> Result<u32, Unavailable> {
        let count = read_variable(DEVICES, "a number of devices", |text| text.parse().ok())?;
        Ok(count.unwrap_or(1))
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        if !Self::probe().is_ok_and(|count| ordinal < count) {
            let why = "no device has this number";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", why));
        }
        let mut properties = DeviceProperties::new(format!("Sample device {ordinal}"), CAPACITY);
        properties.driver = format!("sample-backend {}", env!("CARGO_PKG_VERSION"));
        properties.alignment = 2 * MIB; // that of a table of segments
        Ok(Self { properties, memory: Memory::new(CAPACITY), streams: Streams::new() })
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(self.memory.accounting.memory_info())
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<SampleStream> {
        let progress = Arc::default();
        self.streams.add(&progress);
        SampleStream::start(progress)
    }

    fn synchronize(&self, stream: &SampleStream) -> DriverResult<()> {
        stream.wait();
        Ok(())
    }

    fn is_idle(&self, stream: &SampleStream) -> DriverResult<bool> {
        Ok(stream.is_idle())
    }

    fn event(&self, flags: EventFlags) -> DriverResult<SampleEvent> {
        flags.refuse_interprocess("event")?;
        Ok(SampleEvent::default())
    }

    fn record(&self, event: &SampleEvent, stream: &SampleStream) -> DriverResult<()> {
        event.set(stream.point());
        Ok(())
    }

    fn wait(&self, stream: &SampleStream, event: &SampleEvent) -> DriverResult<()> {
        if let Some(point) = event.point() {
            stream.submit(move || point.wait());
        }
        Ok(())
    }

    fn is_complete(&self, event: &SampleEvent) -> DriverResult<bool> {
        Ok(event.point().is_none_or(|point| point.reached().is_some()))
    }

    fn wait_host(&self, event: &SampleEvent) -> DriverResult<()> {
        if let Some(point) = event.point() {
            point.wait();
        }
        Ok(())
    }

    fn elapsed_ns(&self, start: &SampleEvent, end: &SampleEvent) -> DriverResult<i64> {
        let time = |event: &SampleEvent| event.point().and_then(|point| point.reached());
        match (time(start), time(end)) {
            (Some(start), Some(end)) => Ok(nanoseconds_between(start, end)),
            _ => {
                let why = "an event has not been reached";
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, "elapsed_ns", why))
            }
        }
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<SamplePtr> {
        self.memory.alloc(len).or_else(|_| {
            self.finish(); // which frees what was given back under it
            self.memory.alloc(len)
        })
    }

    unsafe fn dealloc(&self, ptr: SamplePtr, _len: NonZeroU64) {
        self.memory.dealloc(ptr);
    }

    unsafe fn copy(
        &self,
        dst: Place<SamplePtr>,
        src: Place<SamplePtr>,
        len: NonZeroU64,
        stream: &SampleStream,
    ) -> DriverResult<()> {
        let len = byte_count(len);
        let (to, from) = (self.end("copy", dst, len)?, self.end("copy", src, len)?);
        stream.submit(move || match (to, from) {
            (End::Device(to), End::Device(from)) => {
                let bytes = from.with(|bytes| bytes.to_vec()); // never two buffers at once, which could deadlock
                to.with(|to| to.copy_from_slice(&bytes));
            }
            (End::Device(to), End::Host(from)) => to.with(|to| {
                // SAFETY: The caller promises that the host memory is valid until the stream has done the copy.
                unsafe { from.read(to) };
            }),
            (End::Host(to), End::Device(from)) => from.with(|from| {
                // SAFETY: As above.
                unsafe { to.write(from) };
            }),
            (End::Host(to), End::Host(from)) => {
                // SAFETY: As above, for both, which do not overlap.
                unsafe { from.start.copy_to_nonoverlapping(to.start, len) };
            }
        });
        Ok(())
    }

    unsafe fn fill(&self, dst: SamplePtr, value: u8, len: NonZeroU64, stream: &SampleStream) -> DriverResult<()> {
        let to = self.memory.range("fill", dst, byte_count(len))?;
        stream.submit(move || to.with(|to| to.fill(value)));
        Ok(())
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        self.finish();
    }
}

/// One end of a copy.
enum End {
    Device(Range),
    Host(Host),
}

/// Memory of the host.
struct Host {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: Only the thread of a stream uses it, while the caller of `copy` leaves it alone.
unsafe impl Send for Host {}

impl Host {
    /// # Safety
    /// * The memory is valid, and does not overlap `to`.
    unsafe fn read(&self, to: &mut [u8]) {
        // SAFETY: The caller guarantees it; both have the length of the copy.
        unsafe { self.start.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), self.len) };
    }

    /// # Safety
    /// * The memory is valid for writes, and does not overlap `from`.
    unsafe fn write(&self, from: &[u8]) {
        // SAFETY: The caller guarantees it; both have the length of the copy.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(from.as_ptr(), self.len) };
    }
}
