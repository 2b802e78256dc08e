//! A simulated device of any size that has only addresses, and streams that can be held and released by hand.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

mod graphs;
mod virtual_memory;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use accelerator_core::backend_kit::{Captures, EventCapture, lock};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, EventFlags, GIB,
    Graphs, MIB, MemoryInfo, MemoryInfoSource, Place, StreamKind, Unavailable, VirtualMemory,
};

use self::virtual_memory::Pager;
use crate::calls::{Call, Calls, failure};
use crate::controls::Controls;
use crate::mappings::PhysicalRange;
use crate::timeline::{Ticket, Timeline};

/// A simulated device.
///
/// Memory consists of addresses, which are handed out in ascending order at multiples of 2 MiB and never reused; copies
/// and fills are rejected, unless they are captured: a launch of their graph does nothing. Streams run at once unless
/// [held](Controls::hold). Events recorded on a held stream become complete when it is released or when the host waits
/// for them.
#[derive(Debug)]
pub struct Sim {
    properties: DeviceProperties,
    calls: Arc<Calls>,
    fail_allocs: AtomicU64,
    maps: bool,
    maps_twice: bool,
    largest_reservation: u64,
    memory: Mutex<Memory>,
    captures: Arc<Captures<()>>,
}

#[derive(Debug)]
struct Memory {
    capacity: u64,
    used: u64,
    next: u64,
    live: BTreeMap<u64, u64>,
    pager: Pager,
}

/// An address of the simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SimPtr(u64);

impl DevicePtr for SimPtr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

/// A stream of the simulated device.
#[derive(Debug)]
pub struct SimStream {
    number: u64,
    timeline: Arc<Timeline>,
}

/// An event of the simulated device.
#[derive(Debug)]
pub struct SimEvent(Mutex<Recorded>);

/// The last record of an event.
#[derive(Debug)]
enum Recorded {
    Never,
    /// At a point that was reached already.
    Reached,
    At(Ticket),
    /// Boxed, because the other variants are small.
    InCapture(Box<EventCapture>),
}

impl Sim {
    /// Makes a device with this many bytes.
    pub fn new(capacity: u64) -> Self {
        let mut properties = DeviceProperties::new("Simulated device", capacity);
        properties.driver = "simulated, addresses only".to_owned();
        properties.alignment = 2 * MIB;
        properties.stream_priorities = (0, -1);
        let memory =
            Memory { capacity, used: 0, next: <Self as Controls>::BASE, live: BTreeMap::new(), pager: Pager::new() };
        Self {
            properties,
            calls: Arc::default(),
            fail_allocs: AtomicU64::new(0),
            maps: true,
            maps_twice: true,
            largest_reservation: u64::MAX,
            memory: Mutex::new(memory),
            captures: Arc::default(),
        }
    }

    /// Limits each allocation to this many bytes, however much is free. A larger request fails with
    /// [`AllocationTooLarge`](DriverErrorKind::AllocationTooLarge).
    pub fn with_largest_allocation(mut self, bytes: u64) -> Self {
        self.properties.largest_allocation = bytes;
        self
    }

    /// Makes the device unable to map memory: it offers no [`VirtualMemory`].
    pub fn without_virtual_memory(mut self) -> Self {
        self.maps = false;
        self
    }

    /// Makes the device map memory at only one address at a time. [`maps_twice`](VirtualMemory::maps_twice) then
    /// returns false, and a second mapping is rejected.
    pub fn without_second_mappings(mut self) -> Self {
        self.maps_twice = false;
        self
    }

    /// Limits each reservation of address space to this many bytes, as some drivers do.
    pub fn with_largest_reservation(mut self, bytes: u64) -> Self {
        self.largest_reservation = bytes;
        self
    }

    /// Returns the number of allocated bytes.
    pub fn used(&self) -> u64 {
        self.memory().used
    }

    /// Returns the physical memory behind `len` bytes at an address, in order of address, or `None` if any part has
    /// none.
    pub fn physical(&self, address: u64, len: u64) -> Option<Vec<PhysicalRange>> {
        let (memory, end) = (self.memory(), address.checked_add(len)?);
        let (mut at, mut ranges) = (address, Vec::new());
        while at < end {
            let mut range = memory.behind(at)?;
            range.len = range.len.min(end - at);
            at += range.len;
            ranges.push(range);
        }
        Some(ranges)
    }

    /// Checks whether memory may be allocated: no failure is due, and the size is within the limit.
    fn admit(&self, call: Call, len: NonZeroU64) -> DriverResult<()> {
        let injected = self.fail_allocs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if injected.is_ok() {
            return Err(out_of_memory(call));
        }
        if len.get() > self.properties.largest_allocation {
            let too_large = "more than the largest allocation";
            return Err(failure(call, DriverErrorKind::AllocationTooLarge, too_large));
        }
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

impl Memory {
    /// Returns the memory behind an address, from that address to the end of its range.
    fn behind(&self, address: u64) -> Option<PhysicalRange> {
        let (start, len) = self.live.range(..=address).next_back().map(|(start, len)| (*start, *len)).unzip();
        let (start, len) = (start.unwrap_or(0), len.unwrap_or(0));
        let offset = address - start;
        if offset < len {
            return Some(PhysicalRange { memory: start, offset, len: len - offset });
        }
        self.pager.behind(address)
    }

    fn charge(&mut self, call: Call, len: NonZeroU64) -> DriverResult<()> {
        let used = self.used.checked_add(len.get()).filter(|used| *used <= self.capacity);
        self.used = used.ok_or(out_of_memory(call))?;
        Ok(())
    }
}

fn out_of_memory(call: Call) -> DriverError {
    failure(call, DriverErrorKind::OutOfMemory, "out of memory")
}

impl Controls for Sim {
    const BASE: u64 = 0x1000_0000_0000;
    const HAS_BYTES: bool = false;

    fn hold(&self, stream: &SimStream) {
        stream.timeline.hold();
    }

    fn release(&self, stream: &SimStream) {
        stream.timeline.release();
    }

    fn settle(&self) {}

    fn launch(&self, stream: &SimStream) -> DriverResult<()> {
        self.captures.record(stream.number, || ());
        Ok(())
    }

    fn set_capacity(&self, capacity: u64) {
        self.memory().capacity = capacity;
    }

    fn fail_allocs(&self, count: u64) {
        self.fail_allocs.store(count, Ordering::Relaxed);
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new(16 * GIB)
    }
}

// SAFETY: Neither the core nor this type dereferences addresses, and each is handed out only once; streams and events
// keep the order that `Timeline` documents; `dealloc` returns no memory to any system; nothing calls the core.
unsafe impl Backend for Sim {
    const KIND: DeviceKind = DeviceKind::new("sim");
    type Ptr = SimPtr;
    type Stream = SimStream;
    type Event = SimEvent;

    fn probe() -> Result<u32, Unavailable> {
        Ok(1)
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        match ordinal {
            0 => Ok(Self::default()),
            _ => {
                let why = "the only simulated device has number 0";
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", why))
            }
        }
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.calls.count(Call::MemoryInfo);
        let Memory { capacity, used, .. } = *self.memory();
        let free = capacity.saturating_sub(used);
        Ok(MemoryInfo::new(free, capacity, MemoryInfoSource::Driver))
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<SimStream> {
        self.calls.count(Call::Stream);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(SimStream { number: NEXT.fetch_add(1, Ordering::Relaxed), timeline: Arc::default() })
    }

    fn synchronize(&self, stream: &SimStream) -> DriverResult<()> {
        self.calls.count(Call::Synchronize);
        stream.timeline.synchronize();
        self.captures.refuse_captured(stream.number, Call::Synchronize.name())
    }

    fn is_idle(&self, stream: &SimStream) -> DriverResult<bool> {
        self.calls.count(Call::IsIdle);
        self.captures.refuse_captured(stream.number, Call::IsIdle.name())?;
        Ok(stream.timeline.is_idle())
    }

    fn event(&self, flags: EventFlags) -> DriverResult<SimEvent> {
        self.calls.count(Call::Event);
        flags.refuse_interprocess(Call::Event.name())?;
        Ok(SimEvent(Mutex::new(Recorded::Never)))
    }

    fn record(&self, event: &SimEvent, stream: &SimStream) -> DriverResult<()> {
        self.calls.count(Call::Record);
        let mut recorded = event.recorded();
        match self.captures.record_event(stream.number) {
            Some(captured) => *recorded = Recorded::InCapture(Box::new(captured)),
            None => *recorded = stream.timeline.record().map_or(Recorded::Reached, Recorded::At),
        }
        Ok(())
    }

    fn wait(&self, stream: &SimStream, event: &SimEvent) -> DriverResult<()> {
        self.calls.count(Call::Wait);
        match &*event.recorded() {
            Recorded::Never => Ok(()),
            Recorded::Reached | Recorded::At(_) => self.captures.wait(stream.number, None).map(drop),
            Recorded::InCapture(event) => self.captures.wait(stream.number, Some(event)).map(drop),
        }
    }

    fn is_complete(&self, event: &SimEvent) -> DriverResult<bool> {
        self.calls.count(Call::IsComplete);
        match &*event.recorded() {
            Recorded::Never | Recorded::Reached => Ok(true),
            Recorded::At(ticket) => Ok(ticket.is_complete()),
            Recorded::InCapture(event) => Err(event.unanswered(Call::IsComplete.name())),
        }
    }

    fn wait_host(&self, event: &SimEvent) -> DriverResult<()> {
        self.calls.count(Call::WaitHost);
        match &*event.recorded() {
            Recorded::Never | Recorded::Reached => Ok(()),
            Recorded::At(ticket) => {
                ticket.complete();
                Ok(())
            }
            Recorded::InCapture(event) => Err(event.unanswered(Call::WaitHost.name())),
        }
    }

    fn elapsed_ns(&self, _start: &SimEvent, _end: &SimEvent) -> DriverResult<i64> {
        self.calls.count(Call::ElapsedNs);
        Ok(0)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<SimPtr> {
        self.calls.count(Call::Alloc);
        self.admit(Call::Alloc, len)?;
        let mut memory = self.memory();
        let address = memory.next;
        let rounded = len.get().checked_next_multiple_of(2 * MIB);
        let next = rounded.and_then(|len| address.checked_add(len)).ok_or(out_of_memory(Call::Alloc))?;
        memory.charge(Call::Alloc, len)?;
        memory.next = next;
        memory.live.insert(address, len.get());
        Ok(SimPtr(address))
    }

    unsafe fn dealloc(&self, ptr: SimPtr, len: NonZeroU64) {
        self.calls.count(Call::Dealloc);
        let mut memory = self.memory();
        let given_back = memory.live.remove(&ptr.0);
        assert_eq!(given_back, Some(len.get()), "dealloc of {ptr:?} with {len} bytes, which were not allocated");
        memory.used -= len.get();
    }

    unsafe fn copy(
        &self,
        _dst: Place<SimPtr>,
        _src: Place<SimPtr>,
        _len: NonZeroU64,
        stream: &SimStream,
    ) -> DriverResult<()> {
        self.calls.count(Call::Copy);
        self.work(Call::Copy, stream)
    }

    unsafe fn fill(&self, _dst: SimPtr, _value: u8, _len: NonZeroU64, stream: &SimStream) -> DriverResult<()> {
        self.calls.count(Call::Fill);
        self.work(Call::Fill, stream)
    }

    #[inline] // the core asks before each event
    fn is_capturing(&self, stream: &SimStream) -> DriverResult<bool> {
        Ok(self.captures.is_capturing(stream.number))
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<SimPtr>> {
        self.maps.then_some(self as &dyn VirtualMemory<SimPtr>)
    }
}

impl SimEvent {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.0)
    }
}
