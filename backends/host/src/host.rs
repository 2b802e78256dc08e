use std::env;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use accelerator_core::{
    Backend, DeviceCapability, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult,
    EventFlags, MemoryInfo, Place, StreamKind, Unavailable, read_capacity, read_variable,
};

use crate::access::{Access, Touched};
use crate::memory::{self, HostPtr, Memory};
#[cfg(target_os = "linux")]
use crate::virtual_memory::Pager;
use crate::worker::{HostEvent, HostStream};

const DEVICES: &str = "ACCELERATOR_HOST_DEVICES";
const CAPACITY: &str = "ACCELERATOR_HOST_CAPACITY";

/// The host as a device: its memory, and a thread for each stream.
///
/// There is one, or as many as `ACCELERATOR_HOST_DEVICES` says; they share the machine. Each hands out as much memory as
/// the machine has, or as `ACCELERATOR_HOST_CAPACITY` says (`16GiB`).
#[derive(Debug)]
pub struct Host {
    ordinal: u32,
    properties: DeviceProperties,
    memory: Memory,
    #[cfg(target_os = "linux")]
    pager: Option<Pager>,
    streams: Mutex<Vec<HostStream>>,
    access: Arc<Access>,
}

impl Host {
    /// A device that hands out at most `capacity` bytes.
    pub fn new(ordinal: u32, capacity: u64) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let properties = DeviceProperties {
            name: format!("Host, {threads} hardware threads"),
            driver: format!("{} {}, no driver needed", env::consts::OS, env::consts::ARCH),
            total_memory: capacity,
            largest_allocation: u64::MAX,
            alignment: memory::page_size(),
            stream_priorities: (0, 0),
            capability: DeviceCapability { supported_dtypes: DTYPES.to_vec() },
            uuid: None,
            pci_address: None,
        };
        let (memory, streams) = (Memory::new(capacity), Mutex::default());
        Self {
            ordinal,
            properties,
            #[cfg(target_os = "linux")]
            pager: Pager::new(Arc::clone(&memory.accounting)),
            memory,
            streams,
            access: Arc::default(),
        }
    }

    /// Runs work on a stream, while no other work on what it touches runs.
    pub(crate) fn run(
        &self,
        stream: &HostStream,
        touched: Vec<Touched>,
        work: impl FnOnce() + Send + 'static,
    ) {
        let access = Arc::clone(&self.access);
        stream.submit(move || access.run(&touched, work));
    }
}

const DTYPES: [&str; 11] =
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"];

// SAFETY: A map is whole pages that overlap no other; a stream's thread does its jobs in order, and waits in them for
// events; it reaches an event after what lies before it, behind a lock that makes the effects visible; `dealloc` leaves
// unmapping to the last stream that had work at that time; nothing here panics or calls the core.
unsafe impl Backend for Host {
    const KIND: DeviceKind = DeviceKind::new("host");
    type Ptr = HostPtr;
    type Stream = HostStream;
    type Event = HostEvent;

    fn probe() -> Result<u32, Unavailable> {
        capacity()?;
        match read_variable(DEVICES, "a number of devices", |devices| devices.parse().ok())? {
            Some(0) => Err(Unavailable { reason: format!("{DEVICES} is 0") }),
            count => Ok(count.unwrap_or(1)),
        }
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        let refused = DriverError {
            kind: DriverErrorKind::InvalidArgument,
            call: "open",
            code: -1,
            name: "there is no such host device",
        };
        match (Self::probe(), capacity()) {
            (Ok(count), Ok(capacity)) if ordinal < count => Ok(Self::new(ordinal, capacity)),
            _ => Err(refused),
        }
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(self.memory.accounting.memory_info())
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<HostStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = HostStream::start(format!("host:{} stream {}", self.ordinal, streams.len()))?;
        streams.push(stream.clone());
        Ok(stream)
    }

    fn synchronize(&self, stream: &HostStream) -> DriverResult<()> {
        stream.synchronize()
    }

    fn is_idle(&self, stream: &HostStream) -> DriverResult<bool> {
        Ok(stream.is_idle())
    }

    fn event(&self, _flags: EventFlags) -> DriverResult<HostEvent> {
        Ok(HostEvent::default())
    }

    fn record(&self, event: &HostEvent, stream: &HostStream) -> DriverResult<()> {
        event.record(stream);
        Ok(())
    }

    fn wait(&self, stream: &HostStream, event: &HostEvent) -> DriverResult<()> {
        event.wait_on(stream);
        Ok(())
    }

    fn is_complete(&self, event: &HostEvent) -> DriverResult<bool> {
        Ok(event.is_complete())
    }

    fn wait_host(&self, event: &HostEvent) -> DriverResult<()> {
        event.wait();
        Ok(())
    }

    fn elapsed_ns(&self, start: &HostEvent, end: &HostEvent) -> DriverResult<i64> {
        let (Some(start), Some(end)) = (start.reached(), end.reached()) else { return Ok(0) };
        let after = |a: Instant, b: Instant| a.saturating_duration_since(b).as_nanos() as i64;
        Ok(after(end, start) - after(start, end))
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<HostPtr> {
        self.memory.map(len)
    }

    unsafe fn dealloc(&self, ptr: HostPtr, _len: NonZeroU64) {
        let pages = Arc::new(self.memory.take_back(ptr));
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.iter().filter(|stream| !stream.is_idle()) {
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
        let (dst, src, len) = (address(dst), address(src), len.get() as usize);
        let touched = vec![Touched::new(src, len, false), Touched::new(dst, len, true)];
        // SAFETY: The caller promises two valid ranges that do not overlap, until the stream has done this; no other work on
        // them runs meanwhile.
        self.run(stream, touched, move || unsafe { src.as_ptr().copy_to_nonoverlapping(dst.as_ptr(), len) });
        Ok(())
    }

    unsafe fn fill(&self, dst: HostPtr, value: u8, len: NonZeroU64, stream: &HostStream) -> DriverResult<()> {
        let len = len.get() as usize;
        let touched = vec![Touched::new(dst, len, true)];
        // SAFETY: The caller promises a range valid for writes; no other work on it runs meanwhile.
        self.run(stream, touched, move || unsafe { dst.as_ptr().write_bytes(value, len) });
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn virtual_memory(&self) -> Option<&dyn accelerator_core::VirtualMemory<HostPtr>> {
        self.pager.as_ref().map(|pager| pager as _)
    }
}

fn capacity() -> Result<u64, Unavailable> {
    Ok(read_capacity(CAPACITY)?.unwrap_or_else(memory::of_machine))
}

fn address(place: Place<HostPtr>) -> HostPtr {
    match place {
        Place::Device(ptr) => ptr,
        Place::Host(ptr) => HostPtr::new(NonNull::as_ptr(ptr)),
    }
}
