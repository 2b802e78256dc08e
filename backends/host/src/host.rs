use std::env;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use accelerator_core::backend_kit::{
    Captures, Health, byte_count, lock, nanoseconds_between, read_capacity, read_variable,
};
use accelerator_core::{
    Backend, DeviceCapability, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags,
    Graphs, MemoryInfo, Place, StreamKind, Unavailable,
};

use crate::access::{Access, Touched};
use crate::graphs::Node;
use crate::memory::{self, HostPtr, Memory};
use crate::process;
#[cfg(target_os = "linux")]
use crate::virtual_memory::PrivatePager;
use crate::worker::{HostEvent, HostStream, Record};

const DEVICES: &str = "ACCELERATOR_HOST_DEVICES";
const CAPACITY: &str = "ACCELERATOR_HOST_CAPACITY";
const INHERITED: &str = "ACCELERATOR_HOST_INHERITED";

/// The maximum number of devices. Each has at least one thread. PyTorch's limit is the same, as its device numbers have
/// 8 bits.
const MAX_DEVICES: u32 = 128;

/// The host as a device: its memory, and a thread for each stream.
///
/// There is one device unless `ACCELERATOR_HOST_DEVICES` sets another number, up to 128. They share the machine. Each
/// hands out as much memory as the machine has, or as `ACCELERATOR_HOST_CAPACITY` allows (such as `16GiB`).
///
/// A device belongs to the process that made it. In a forked child every call fails with
/// [`DeviceLost`](DriverErrorKind::DeviceLost), and on Linux none of its memory is mapped there, unless it is
/// [inherited](Self::open_inherited).
#[derive(Debug)]
pub struct Host {
    pub(crate) health: Health,
    ordinal: u32,
    properties: DeviceProperties,
    pub(crate) memory: Memory,
    #[cfg(target_os = "linux")]
    private_pager: Option<PrivatePager>,
    streams: Mutex<Vec<HostStream>>,
    pub(crate) access: Arc<Access>,
    pub(crate) captures: Arc<Captures<Node>>,
}

impl Host {
    /// Makes a device that hands out at most `capacity` bytes.
    pub fn new(ordinal: u32, capacity: u64) -> Self {
        Self::with(ordinal, capacity, false)
    }

    /// Opens a device as [`open`](Backend::open) does, but a forked child has copies of its bytes, as it has of memory
    /// from `malloc`. Other processes cannot import such memory. `ACCELERATOR_HOST_INHERITED=1` makes all devices so.
    ///
    /// # Errors
    /// As for [`open`](Backend::open).
    pub fn open_inherited(ordinal: u32) -> DriverResult<Self> {
        Self::open_with(ordinal, true)
    }

    fn open_with(ordinal: u32, is_inherited: bool) -> DriverResult<Self> {
        match (Self::probe(), capacity()) {
            (Ok(count), Ok(capacity)) if ordinal < count => Ok(Self::with(ordinal, capacity, is_inherited)),
            _ => {
                let why = "no host device has this number";
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", why))
            }
        }
    }

    fn with(ordinal: u32, capacity: u64, is_inherited: bool) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut properties = DeviceProperties::new(format!("Host, {threads} hardware threads"), capacity);
        properties.driver = format!("{} {}, no driver needed", env::consts::OS, env::consts::ARCH);
        properties.alignment = memory::page_size();
        properties.capability = DeviceCapability::with(["float64"]);
        let memory = Memory::new(capacity, is_inherited);
        Self {
            health: process::health(),
            ordinal,
            properties,
            #[cfg(target_os = "linux")]
            private_pager: if is_inherited { PrivatePager::new(Arc::clone(&memory.accounting)) } else { None },
            streams: Mutex::default(),
            access: Arc::new(Access::new(&memory.accounting, is_inherited)),
            memory,
            captures: Arc::default(),
        }
    }

    /// Runs work on a stream while no other work on the same bytes runs. It is for kernels on memory whose use is
    /// recorded elsewhere; [`launch`](crate::launch) is for buffers.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) while the stream captures, since the work of a graph runs
    /// many times: use [`run_repeatable`](Self::run_repeatable). Fails in a process that was forked from the one that
    /// opened the device.
    pub fn run(
        &self,
        stream: &HostStream,
        touched: &[Touched],
        work: impl FnOnce() + Send + 'static,
    ) -> DriverResult<()> {
        self.health.check()?;
        if self.captures.is_capturing(stream.id()) {
            let why = "a graph runs its work many times, but this closure runs once: use the function that takes a \
                       repeatable closure";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "launch", why));
        }
        self.submit(stream, touched, work);
        Ok(())
    }

    /// Runs work as [`run`](Self::run) does, or captures it if the stream captures.
    ///
    /// # Errors
    /// Fails in a process that was forked from the one that opened the device.
    pub fn run_repeatable(
        &self,
        stream: &HostStream,
        touched: &[Touched],
        work: impl Fn() + Send + Sync + 'static,
    ) -> DriverResult<()> {
        self.health.check()?;
        let mut work = Some(work);
        let mut taken = || work.take().unwrap_or_else(|| unreachable!("it is called once"));
        self.captures.record(stream.id(), || Node::new(touched, taken()));
        if let Some(work) = work {
            self.submit(stream, touched, work);
        }
        Ok(())
    }

    fn submit(&self, stream: &HostStream, touched: &[Touched], work: impl FnOnce() + Send + 'static) {
        let access = Arc::clone(&self.access);
        let bytes = access.behind(touched);
        stream.submit(move || access.run(&bytes, work));
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
        is_inherited()?;
        let read = |devices: &str| devices.parse().ok().filter(|devices| *devices <= MAX_DEVICES);
        match read_variable(DEVICES, &format!("a number of devices up to {MAX_DEVICES}"), read)? {
            Some(0) => Err(Unavailable::new(format!("{DEVICES} is 0"))),
            count => Ok(count.unwrap_or(1)),
        }
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        Self::open_with(ordinal, is_inherited().unwrap_or(false)) // whose error `probe` has told
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
        stream.synchronize()?; // earlier work may still access host memory, even if the stream captures now
        self.captures.refuse_captured(stream.id(), "synchronize")
    }

    fn is_idle(&self, stream: &HostStream) -> DriverResult<bool> {
        self.health.check()?;
        self.captures.refuse_captured(stream.id(), "is_idle")?;
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
        event.set(match self.captures.record_event(stream.id()) {
            Some(captured) => Record::Captured(captured),
            None => Record::Submitted(stream.record()),
        });
        Ok(())
    }

    fn wait(&self, stream: &HostStream, event: &HostEvent) -> DriverResult<()> {
        self.health.check()?;
        match event.last() {
            None => {}
            Some(Record::Captured(event)) => _ = self.captures.wait(stream.id(), Some(&event))?,
            Some(Record::Submitted(recording)) => {
                self.captures.wait(stream.id(), None)?;
                stream.wait_for(recording);
            }
        }
        Ok(())
    }

    fn is_complete(&self, event: &HostEvent) -> DriverResult<bool> {
        self.health.check()?;
        event.is_complete()
    }

    fn wait_host(&self, event: &HostEvent) -> DriverResult<()> {
        self.health.check()?;
        event.recording("wait_host")?.iter().for_each(|recording| _ = recording.wait());
        Ok(())
    }

    fn elapsed_ns(&self, start: &HostEvent, end: &HostEvent) -> DriverResult<i64> {
        self.health.check()?;
        let reached = |event: &HostEvent| -> DriverResult<Option<Instant>> {
            Ok(event.recording("elapsed_ns")?.and_then(|recording| recording.get().copied()))
        };
        let (Some(start), Some(end)) = (reached(start)?, reached(end)?) else { return Ok(0) };
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
        self.run_repeatable(stream, &touched, move || unsafe { src.as_ptr().copy_to_nonoverlapping(dst.as_ptr(), len) })
    }

    unsafe fn fill(&self, dst: HostPtr, value: u8, len: NonZeroU64, stream: &HostStream) -> DriverResult<()> {
        let len = byte_count(len);
        let touched = [Touched::new(dst, len, true)];
        // SAFETY: The caller promises a range that is valid for writes. No other work on the same bytes runs meanwhile,
        // at whatever address.
        self.run_repeatable(stream, &touched, move || unsafe { dst.as_ptr().write_bytes(value, len) })
    }

    fn is_capturing(&self, stream: &HostStream) -> DriverResult<bool> {
        self.health.check()?;
        Ok(self.captures.is_capturing(stream.id()))
    }

    fn serializes_conflicts(&self) -> bool {
        true
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }

    #[cfg(target_os = "linux")]
    fn interprocess(&self) -> Option<&dyn accelerator_core::Interprocess<HostPtr>> {
        self.access.pager().map(|_| self as _)
    }

    #[cfg(target_os = "linux")]
    fn virtual_memory(&self) -> Option<&dyn accelerator_core::VirtualMemory<HostPtr>> {
        match &self.private_pager {
            Some(pager) => Some(pager),
            None => self.access.pager().map(|pager| pager as _),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.health.is_forked() {
            // After a fork, the addresses may belong to something else. No lock is taken, not even a channel's: a
            // thread that no longer exists may have held it.
            self.memory.forget();
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

fn is_inherited() -> Result<bool, Unavailable> {
    let read = |value: &str| match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    Ok(read_variable(INHERITED, "0 or 1", read)?.unwrap_or(false))
}

fn address(place: Place<HostPtr>) -> DriverResult<HostPtr> {
    match place {
        Place::Device(ptr) => Ok(ptr),
        Place::Host(ptr) => Ok(HostPtr::new(NonNull::as_ptr(ptr))),
        _ => Err(DriverError::unknown_place("copy")),
    }
}
