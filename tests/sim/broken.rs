//! The host's driver with one thing wrong.

use std::num::NonZeroU64;

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags,
    MemoryInfo, Place, StreamKind, Unavailable,
};
use accelerator_host::{Host, HostEvent, HostPtr, HostStream};

/// Nothing is wrong.
pub(crate) const NOTHING: u8 = 0;
/// There is no driver on this machine.
pub(crate) const ABSENT: u8 = 1;
/// There is a device, but it cannot be opened.
pub(crate) const CLOSED: u8 = 2;
/// Any device number opens.
pub(crate) const ANY_NUMBER: u8 = 3;
/// Running out of memory is told as another error.
pub(crate) const NO_SUCH_ERROR: u8 = 4;
/// Fills are forgotten.
pub(crate) const NO_FILL: u8 = 5;
/// Copies take one byte too few.
pub(crate) const SHORT_COPY: u8 = 6;
/// An event that was never recorded is not complete.
pub(crate) const INCOMPLETE: u8 = 7;
/// Memory lies at odd addresses.
pub(crate) const MISALIGNED: u8 = 8;
/// Streams do not wait for events.
pub(crate) const NO_WAIT: u8 = 9;
/// Events are complete at once.
pub(crate) const EARLY: u8 = 10;
/// Time runs backwards.
pub(crate) const BACKWARDS: u8 = 11;

pub(crate) struct Broken<const FAULT: u8>(Host);

fn refused(kind: DriverErrorKind, name: &'static str) -> DriverError {
    DriverError { kind, call: "broken", code: -1, name }
}

// SAFETY: The host's driver; what is wrong with it is not what memory safety rests on, but for the memory that lies
// one byte further on, of which there is one byte more.
unsafe impl<const FAULT: u8> Backend for Broken<FAULT> {
    const KIND: DeviceKind = DeviceKind::new("broken");
    type Ptr = HostPtr;
    type Stream = HostStream;
    type Event = (HostEvent, std::sync::atomic::AtomicBool);

    fn probe() -> Result<u32, Unavailable> {
        match FAULT {
            ABSENT => Err(Unavailable { reason: "libbroken.so was not found".to_owned() }),
            _ => Ok(1),
        }
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        match FAULT {
            CLOSED => Err(refused(DriverErrorKind::DeviceLost, "it is on fire")),
            ANY_NUMBER => Host::open(0).map(Self),
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
        event.1.store(true, std::sync::atomic::Ordering::Relaxed);
        self.0.record(&event.0, stream)
    }

    fn wait(&self, stream: &HostStream, event: &Self::Event) -> DriverResult<()> {
        match FAULT {
            NO_WAIT => Ok(()),
            _ => self.0.wait(stream, &event.0),
        }
    }

    fn is_complete(&self, event: &Self::Event) -> DriverResult<bool> {
        match FAULT {
            EARLY => Ok(true),
            INCOMPLETE if !event.1.load(std::sync::atomic::Ordering::Relaxed) => Ok(false),
            _ => self.0.is_complete(&event.0),
        }
    }

    fn elapsed_ns(&self, start: &Self::Event, end: &Self::Event) -> DriverResult<i64> {
        let elapsed = self.0.elapsed_ns(&start.0, &end.0)?;
        Ok(if FAULT == BACKWARDS { -elapsed } else { elapsed })
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        match FAULT {
            MISALIGNED => {
                let more = len.checked_add(1).ok_or(refused(DriverErrorKind::OutOfMemory, "too much"))?;
                Ok(accelerator_core::DevicePtr::offset(self.0.alloc(more)?, 1))
            }
            NO_SUCH_ERROR => {
                self.0.alloc(len).map_err(|error| DriverError { kind: DriverErrorKind::Other, ..error })
            }
            _ => self.0.alloc(len),
        }
    }

    unsafe fn dealloc(&self, ptr: HostPtr, len: NonZeroU64) {
        if FAULT != MISALIGNED {
            // SAFETY: The caller's promise.
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
        let shorter = NonZeroU64::new(len.get() - u64::from(FAULT == SHORT_COPY));
        match shorter {
            // SAFETY: The caller's promise, for as many bytes or fewer.
            Some(len) => unsafe { self.0.copy(dst, src, len, stream) },
            None => Ok(()),
        }
    }

    unsafe fn fill(&self, dst: HostPtr, value: u8, len: NonZeroU64, stream: &HostStream) -> DriverResult<()> {
        match FAULT {
            NO_FILL => Ok(()),
            // SAFETY: The caller's promise.
            _ => unsafe { self.0.fill(dst, value, len, stream) },
        }
    }
}
