use std::env;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use accelerator_core::backend_kit::{Health, byte_count, lock, nanoseconds_between, read_capacity, read_variable};
use accelerator_core::{
    Backend, DeviceCapability, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags,
    MemoryInfo, Place, StreamKind, Unavailable,
};

use crate::access::{Access, Backing, Bytes, Touched};
use crate::memory::{self, HostPtr, Memory};
use crate::process;
#[cfg(target_os = "linux")]
use crate::virtual_memory::Pager;
use crate::worker::{HostEvent, HostStream};

const DEVICES: &str = "ACCELERATOR_HOST_DEVICES";
const CAPACITY: &str = "ACCELERATOR_HOST_CAPACITY";

/// The maximum number of devices. Each has at least one thread. PyTorch's limit is the same, as its device numbers have
/// 8 bits.
const MAX_DEVICES: u32 = 128;

/// The host as a device: its memory, and a thread for each stream.
///
/// There is one device unless `ACCELERATOR_HOST_DEVICES` sets another number, up to 128. They share the machine. Each
/// hands out as much memory as the machine has, or as `ACCELERATOR_HOST_CAPACITY` allows (such as `16GiB`).
///
/// A device belongs to the process that made it. In a forked child every call fails with
/// [`DeviceLost`](DriverErrorKind::DeviceLost), and on Linux none of its memory is mapped there.
#[derive(Debug)]
pub struct Host {
    health: Health,
    ordinal: u32,
    properties: DeviceProperties,
    memory: Memory,
    #[cfg(target_os = "linux")]
    pager: Option<Pager>,
    streams: Mutex<Vec<HostStream>>,
    access: Arc<Access>,
}

impl Host {
    /// Makes a device that hands out at most `capacity` bytes.
    pub fn new(ordinal: u32, capacity: u64) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut properties = DeviceProperties::new(format!("Host, {threads} hardware threads"), capacity);
        properties.driver = format!("{} {}, no driver needed", env::consts::OS, env::consts::ARCH);
        properties.alignment = memory::page_size();
        properties.capability = DeviceCapability::with(["float64"]);
        let (health, memory, streams) = (process::health(), Memory::new(capacity), Mutex::default());
        Self {
            health,
            ordinal,
            properties,
            #[cfg(target_os = "linux")]
            pager: Pager::new(Arc::clone(&memory.accounting)),
            memory,
            streams,
            access: Arc::default(),
        }
    }

    /// Runs work on a stream while no other work on the same bytes runs. It is for kernels on memory whose use is
    /// recorded elsewhere; [`launch`](crate::launch) is for buffers.
    ///
    /// # Errors
    /// Fails in a process that was forked from the one that opened the device.
    pub fn run(
        &self,
        stream: &HostStream,
        touched: &[Touched],
        work: impl FnOnce() + Send + 'static,
    ) -> DriverResult<()> {
        self.health.check()?;
        let access = Arc::clone(&self.access);
        let bytes = self.behind(touched);
        stream.submit(move || access.run(&bytes, work));
        Ok(())
    }

    /// Returns the bytes behind these addresses. The memory stays there until the work that touches it is done.
    fn behind(&self, touched: &[Touched]) -> Vec<Bytes> {
        let mut bytes = Vec::with_capacity(touched.len());
        for touched in touched {
            #[cfg(target_os = "linux")]
            if let Some(pager) = &self.pager {
                pager.behind(touched, &mut bytes);
                continue;
            }
            bytes.push(touched.bytes(Backing::Private, touched.addresses.clone()));
        }
        bytes
    }

    fn streams(&self) -> MutexGuard<'_, Vec<HostStream>> {
        lock(&self.streams)
    }
}

// SAFETY: A mapping consists of whole pages and overlaps no other. The thread of a stream does its jobs in order, and
// waits for events within them. It completes an event after the work before it, under a lock that makes the effects
// visible. `dealloc` leaves unmapping to the last stream that had work at that time. `Access` keeps work on the same
// bytes apart. Nothing here panics or calls the core.
unsafe impl Backend for Host {
    const KIND: DeviceKind = DeviceKind::new("host");
    type Ptr = HostPtr;
    type Stream = HostStream;
    type Event = HostEvent;

    fn probe() -> Result<u32, Unavailable> {
        capacity()?;
        let read = |devices: &str| devices.parse().ok().filter(|devices| *devices <= MAX_DEVICES);
        match read_variable(DEVICES, &format!("a number of devices up to {MAX_DEVICES}"), read)? {
            Some(0) => Err(Unavailable::new(format!("{DEVICES} is 0"))),
            count => Ok(count.unwrap_or(1)),
        }
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        match (Self::probe(), capacity()) {
            (Ok(count), Ok(capacity)) if ordinal < count => Ok(Self::new(ordinal, capacity)),
            _ => {
                let why = "no host device has this number";
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", why))
            }
        }
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.health.check()?;
        Ok(self.memory.accounting.memory_info())
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<HostStream> {
        self.health.check()?;
        let mut streams = self.streams();
        let stream = HostStream::start(format!("host:{} stream {}", self.ordinal, streams.len()))?;
        streams.push(stream.clone());
        Ok(stream)
    }

    fn synchronize(&self, stream: &HostStream) -> DriverResult<()> {
        self.health.check()?;
        stream.synchronize()
    }

    fn is_idle(&self, stream: &HostStream) -> DriverResult<bool> {
        self.health.check()?;
        Ok(stream.is_idle())
    }

    fn event(&self, flags: EventFlags) -> DriverResult<HostEvent> {
        self.health.check()?;
        flags.refuse_interprocess("event")?;
        Ok(HostEvent::default())
    }

    fn event_id(&self, event: &HostEvent) -> u64 {
        event.id()
    }

    fn record(&self, event: &HostEvent, stream: &HostStream) -> DriverResult<()> {
        self.health.check()?;
        event.record(stream);
        Ok(())
    }

    fn wait(&self, stream: &HostStream, event: &HostEvent) -> DriverResult<()> {
        self.health.check()?;
        event.wait_on(stream);
        Ok(())
    }

    fn is_complete(&self, event: &HostEvent) -> DriverResult<bool> {
        self.health.check()?;
        Ok(event.is_complete())
    }

    fn wait_host(&self, event: &HostEvent) -> DriverResult<()> {
        self.health.check()?;
        event.wait();
        Ok(())
    }

    fn elapsed_ns(&self, start: &HostEvent, end: &HostEvent) -> DriverResult<i64> {
        self.health.check()?;
        let (Some(start), Some(end)) = (start.reached(), end.reached()) else { return Ok(0) };
        Ok(nanoseconds_between(start, end))
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.health.check()?;
        self.memory.map(len)
    }

    unsafe fn dealloc(&self, ptr: HostPtr, _len: NonZeroU64) {
        if self.health.is_forked() {
            return; // the pages belong to the parent
        }
        let pages = Arc::new(self.memory.take_back(ptr));
        for stream in self.streams().iter().filter(|stream| !stream.is_idle()) {
            stream.drop_later(Arc::clone(&pages));
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<HostPtr>,
        src: Place<HostPtr>,
        len: NonZeroU64,
        stream: &HostStream,
    ) -> DriverResult<()> {
        let (dst, src, len) = (address(dst)?, address(src)?, byte_count(len));
        let touched = [Touched::new(src, len, false), Touched::new(dst, len, true)];
        // SAFETY: The caller promises two valid ranges that do not overlap, until the stream has done this. No other
        // work on the same bytes runs meanwhile, at whatever address.
        self.run(stream, &touched, move || unsafe { src.as_ptr().copy_to_nonoverlapping(dst.as_ptr(), len) })
    }

    unsafe fn fill(&self, dst: HostPtr, value: u8, len: NonZeroU64, stream: &HostStream) -> DriverResult<()> {
        let len = byte_count(len);
        let touched = [Touched::new(dst, len, true)];
        // SAFETY: The caller promises a range that is valid for writes. No other work on the same bytes runs meanwhile,
        // at whatever address.
        self.run(stream, &touched, move || unsafe { dst.as_ptr().write_bytes(value, len) })
    }

    fn serializes_conflicts(&self) -> bool {
        true
    }

    #[cfg(target_os = "linux")]
    fn virtual_memory(&self) -> Option<&dyn accelerator_core::VirtualMemory<HostPtr>> {
        self.pager.as_ref().map(|pager| pager as _)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.health.is_forked() {
            // After a fork, the addresses may belong to something else. No lock is taken, not even a channel's: a
            // thread that no longer exists may have held it.
            self.memory.forget();
            #[cfg(target_os = "linux")]
            self.pager.iter_mut().for_each(Pager::forget);
            process::forget(&mut self.streams);
            return;
        }
        // Work that was submitted still uses the memory.
        for stream in self.streams().drain(..) {
            let _ = stream.synchronize(); // nobody is left to be told that a kernel panicked
        }
    }
}

fn capacity() -> Result<u64, Unavailable> {
    Ok(read_capacity(CAPACITY)?.unwrap_or_else(memory::of_machine))
}

fn address(place: Place<HostPtr>) -> DriverResult<HostPtr> {
    match place {
        Place::Device(ptr) => Ok(ptr),
        Place::Host(ptr) => Ok(HostPtr::new(NonNull::as_ptr(ptr))),
        _ => Err(DriverError::unknown_place("copy")),
    }
}
