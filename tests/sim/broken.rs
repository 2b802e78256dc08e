//! The host's driver with a single fault.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, MemoryInfo, Place,
    StreamKind, Unavailable,
};
use accelerator_host::{Host, HostEvent, HostPtr, HostStream};

/// The fault in this process.
static FAULT: OnceLock<Fault> = OnceLock::new();

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// There is no driver on this machine.
    Absent,
    /// There is a device, but it cannot be opened.
    Closed,
    /// Any device number opens.
    AnyNumber,
    /// Out of memory is reported as another error.
    NoSuchError,
    /// Fills do nothing.
    NoFill,
    /// Copies are one byte short.
    ShortCopy,
    /// An event that was never recorded is not complete.
    Incomplete,
    /// Memory has odd addresses.
    Misaligned,
    /// Streams do not wait for events.
    NoWait,
    /// Events are complete at once.
    Early,
    /// Time runs backwards.
    Backwards,
}

/// Sets the fault for this process.
pub(crate) fn fails(fault: Fault) {
    assert!(FAULT.set(fault).is_ok(), "a process has one fault");
}

fn fault() -> Option<Fault> {
    FAULT.get().copied()
}

pub(crate) struct Broken(Host);

fn refused(kind: DriverErrorKind, name: &'static str) -> DriverError {
    DriverError::refused(kind, "broken", name)
}

// SAFETY: This is the host's driver, with faults that do not affect memory safety. The misaligned memory starts one
// byte later, but has one byte more.
unsafe impl Backend for Broken {
    const KIND: DeviceKind = DeviceKind::new("broken");
    type Ptr = HostPtr;
    type Stream = HostStream;
    type Event = (HostEvent, AtomicBool);

    fn probe() -> Result<u32, Unavailable> {
        match fault() {
            Some(Fault::Absent) => Err(Unavailable::new("libbroken.so was not found")),
            _ => Ok(1),
        }
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        match fault() {
            Some(Fault::Closed) => Err(refused(DriverErrorKind::DeviceLost, "it is on fire")),
            Some(Fault::AnyNumber) => Host::open(0).map(Self),
            _ if ordinal > 0 => Err(refused(DriverErrorKind::InvalidArgument, "there is one")),
            _ => Host::open(0).map(Self),
        }
    }

    fn properties(&self) -> &DeviceProperties {
        self.0.properties()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.0.memory_info()
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<HostStream> {
        self.0.stream(kind)
    }

    fn synchronize(&self, stream: &HostStream) -> DriverResult<()> {
        self.0.synchronize(stream)
    }

    fn is_idle(&self, stream: &HostStream) -> DriverResult<bool> {
        self.0.is_idle(stream)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<Self::Event> {
        Ok((self.0.event(flags)?, false.into()))
    }

    fn record(&self, event: &Self::Event, stream: &HostStream) -> DriverResult<()> {
        event.1.store(true, Ordering::Relaxed);
        self.0.record(&event.0, stream)
    }

    fn wait(&self, stream: &HostStream, event: &Self::Event) -> DriverResult<()> {
        match fault() {
            Some(Fault::NoWait) => Ok(()),
            _ => self.0.wait(stream, &event.0),
        }
    }

    fn is_complete(&self, event: &Self::Event) -> DriverResult<bool> {
        match fault() {
            Some(Fault::Early) => Ok(true),
            Some(Fault::Incomplete) if !event.1.load(Ordering::Relaxed) => Ok(false),
            _ => self.0.is_complete(&event.0),
        }
    }

    fn elapsed_ns(&self, start: &Self::Event, end: &Self::Event) -> DriverResult<i64> {
        let elapsed = self.0.elapsed_ns(&start.0, &end.0)?;
        Ok(if fault() == Some(Fault::Backwards) { -elapsed } else { elapsed })
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        match fault() {
            Some(Fault::Misaligned) => {
                let more = len.checked_add(1).ok_or(refused(DriverErrorKind::OutOfMemory, "too much"))?;
                Ok(accelerator_core::DevicePtr::offset(self.0.alloc(more)?, 1))
            }
            Some(Fault::NoSuchError) => self
                .0
                .alloc(len)
                .map_err(|error| DriverError::new(DriverErrorKind::Other, error.call, error.code, error.name)),
            _ => self.0.alloc(len),
        }
    }

    unsafe fn dealloc(&self, ptr: HostPtr, len: NonZeroU64) {
        if fault() != Some(Fault::Misaligned) {
            // SAFETY: The caller guarantees the same.
            unsafe { self.0.dealloc(ptr, len) };
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<HostPtr>,
        src: Place<HostPtr>,
        len: NonZeroU64,
        stream: &HostStream,
    ) -> DriverResult<()> {
        let shorter = NonZeroU64::new(len.get() - u64::from(fault() == Some(Fault::ShortCopy)));
        match shorter {
            // SAFETY: The caller guarantees the same, for at least as many bytes.
            Some(len) => unsafe { self.0.copy(dst, src, len, stream) },
            None => Ok(()),
        }
    }

    unsafe fn fill(&self, dst: HostPtr, value: u8, len: NonZeroU64, stream: &HostStream) -> DriverResult<()> {
        match fault() {
            Some(Fault::NoFill) => Ok(()),
            // SAFETY: The caller guarantees the same.
            _ => unsafe { self.0.fill(dst, value, len, stream) },
        }
    }
}
