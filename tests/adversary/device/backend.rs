//! The backend trait: calls of the engine, of which the shadow is told.
#![allow(unsafe_code, reason = "the trait is unsafe to implement")]

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, Graphs, MIB,
    MemoryInfo, MemoryInfoSource, Place, StreamKind, Unavailable, VirtualMemory,
};
use sim_engine::{Error, Face, Lent, Operation, Source, Target, Work};

use super::shadow::Memory;
use super::state::Session;
use super::{Address, Adversary, Lane, Record, Recorded, refused};

// SAFETY: Memory comes from the engine, which gives out each address once and keeps memory until `dealloc`, which waits
// for the work on it. A lane runs its operations in order. An event is a position in a lane. Nothing calls the core.
unsafe impl Backend for Adversary {
    const KIND: DeviceKind = DeviceKind::new("adversary");
    type Ptr = Address;
    type Stream = Lane;
    type Event = Recorded;

    fn probe() -> Result<u32, Unavailable> {
        Ok(1)
    }

    fn open(_: u32) -> DriverResult<Self> {
        Ok(Self::new(64 * MIB, true, 0))
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.enter("memory_info")?;
        let session = Session::new();
        let device = &session.engine().devices[self.number];
        Ok(MemoryInfo::new(device.free(), device.memory, MemoryInfoSource::Driver))
    }

    fn stream(&self, _: StreamKind) -> DriverResult<Lane> {
        self.enter("stream")?;
        let mut session = Session::new();
        let engine = session.engine_mut();
        let handle = engine.new_handle();
        engine.open_lane(handle, self.number, ());
        Ok(Lane { handle, number: session.shadows[self.number].add_stream() })
    }

    fn synchronize(&self, stream: &Lane) -> DriverResult<()> {
        self.captures.refuse_captured(stream.number as u64, "synchronize")?;
        let (end, clock) = self.end_of(stream);
        let failed = self.enter("synchronize");
        if failed.is_err() {
            // Even then, nothing touches host memory any more. But the host is told nothing.
            let mut session = Session::new();
            let _ = session.wait(&[end]);
            session.shadows[self.number].leave_host(&clock);
        }
        failed.and_then(|()| self.wait_for("synchronize", end, &clock))
    }

    fn is_idle(&self, stream: &Lane) -> DriverResult<bool> {
        self.enter("is_idle")?;
        self.captures.refuse_captured(stream.number as u64, "is_idle")?;
        let (end, clock) = self.end_of(stream);
        Ok(self.ask(end, &clock))
    }

    fn event(&self, flags: EventFlags) -> DriverResult<Recorded> {
        self.enter("event")?;
        flags.refuse_interprocess("event")?;
        Ok(Recorded(Mutex::new(Record::Never)))
    }

    fn record(&self, event: &Recorded, stream: &Lane) -> DriverResult<()> {
        self.enter("record")?;
        let (end, clock) = self.end_of(stream);
        *lock(&event.0) = match self.captures.record_event(stream.number as u64) {
            Some(captured) => Record::InCapture(Box::new((captured, clock))),
            None => Record::At(end, clock),
        };
        Ok(())
    }

    fn wait(&self, stream: &Lane, event: &Recorded) -> DriverResult<()> {
        self.enter("wait")?;
        let (position, clock) = match lock(&event.0).clone() {
            Record::Never => return Ok(()),
            Record::At(position, clock) => {
                self.captures.wait(stream.number as u64, None)?;
                (Some(position), clock)
            }
            Record::InCapture(captured) => {
                self.captures.wait(stream.number as u64, Some(&captured.0))?;
                (None, captured.1)
            }
        };
        let mut session = Session::new();
        session.shadows[self.number].wait(stream.number, position.is_none(), &clock);
        if let Some(position) = position {
            let wait = Operation::new(Work::Nothing).after([position]);
            session.engine_mut().submit(stream.handle, wait);
        }
        Ok(())
    }

    fn is_complete(&self, event: &Recorded) -> DriverResult<bool> {
        match self.enter("is_complete") {
            Err(error) if error.kind == DriverErrorKind::DeviceLost => return Ok(true),
            entered => entered?,
        }
        match lock(&event.0).clone() {
            Record::Never => Ok(true),
            Record::At(position, clock) => Ok(self.ask(position, &clock)),
            Record::InCapture(captured) => Err(captured.0.unanswered("is_complete")),
        }
    }

    fn wait_host(&self, event: &Recorded) -> DriverResult<()> {
        self.enter("wait_host")?;
        match lock(&event.0).clone() {
            Record::Never => Ok(()),
            Record::At(position, clock) => self.wait_for("wait_host", position, &clock),
            Record::InCapture(captured) => Err(captured.0.unanswered("wait_host")),
        }
    }

    fn elapsed_ns(&self, _: &Recorded, _: &Recorded) -> DriverResult<i64> {
        Ok(0)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<Address> {
        self.failures.enter_for_memory("alloc")?;
        let mut session = Session::new();
        let engine = session.engine_mut();
        let address = engine.allocate(self.number, len.get(), 0, 0).map_err(|error| refused("alloc", error))?;
        Ok(Address(address))
    }

    unsafe fn dealloc(&self, at: Address, len: NonZeroU64) {
        let mut session = Session::new();
        let uses = session.engine().uses(at.0, len.get());
        session.wait(&uses);
        let engine = session.engine_mut();
        let bytes = engine.memory.at(at.0).map(|allocation| allocation.bytes);
        let freed = engine.free(at.0);
        let shadow = &mut session.shadows[self.number];
        shadow.forget(Memory::Allocation(at.0));
        if freed.is_err() || bytes != Some(len.get()) {
            shadow.found.push(format!("dealloc of {len} bytes at {:#x}, where {bytes:?} bytes are", at.0));
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<Address>,
        src: Place<Address>,
        len: NonZeroU64,
        stream: &Lane,
    ) -> DriverResult<()> {
        self.enter("copy")?;
        let (to, from) = (placed("copy", dst)?, placed("copy", src)?);
        let address = |place: &Placed| match place {
            Placed::Known(address) => Some(*address),
            Placed::Lent(_) => None,
        };
        let ranges = [(&to, true), (&from, false)];
        let ranges = ranges.iter().filter_map(|(place, writes)| Some((address(place)?, len.get(), *writes)));
        let ranges: Vec<_> = ranges.collect();
        let target = match to {
            Placed::Known(address) => Target::Memory(address),
            Placed::Lent(lent) => Target::Pageable(lent),
        };
        let source = match from {
            Placed::Known(address) => Source::Memory(address),
            Placed::Lent(lent) => Source::Pageable(lent),
        };
        self.work("a copy", stream, vec![Work::Copy { target, source, bytes: len.get() }], &ranges)
    }

    unsafe fn fill(&self, dst: Address, value: u8, len: NonZeroU64, stream: &Lane) -> DriverResult<()> {
        self.enter("fill")?;
        let ranges = [(dst.0, len.get(), true)];
        self.work("a fill", stream, vec![Work::fill(dst.0, value, len.get())], &ranges)
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.failures.enter_for_memory("alloc_host")?;
        let mut session = Session::new();
        let host = &mut session.engine_mut().host;
        let address = host.allocate(len.get() as usize, 0, None, 0).map_err(|error| refused("alloc_host", error))?;
        let at = NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize));
        at.ok_or_else(|| refused("alloc_host", Error::OutOfHostMemory))
    }

    unsafe fn dealloc_host(&self, at: NonNull<u8>, len: NonZeroU64) {
        let mut session = Session::new();
        let address = at.addr().get() as u64;
        let spans = session.spans(address, len.get());
        let shadow = &mut session.shadows[self.number];
        shadow.hand_out_to_host(&spans);
        shadow.forget(Memory::Host(address));
        if session.engine_mut().host.free(address) != Ok(len.get()) {
            session.shadows[self.number].found.push(format!("dealloc_host of {len} bytes at {address:#x}"));
        }
    }

    fn is_capturing(&self, stream: &Lane) -> DriverResult<bool> {
        self.enter("is_capturing")?;
        Ok(self.captures.is_capturing(stream.number as u64))
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Address>> {
        self.maps.then_some(self as &dyn VirtualMemory<Address>)
    }
}

/// One end of a copy: an address that the engine knows, or memory that the program lends.
enum Placed {
    Known(u64),
    Lent(Lent),
}

fn placed(call: &'static str, place: Place<Address>) -> DriverResult<Placed> {
    match place {
        Place::Device(at) => Ok(Placed::Known(at.0)),
        Place::Host(at) => {
            let (session, address) = (Session::new(), at.addr().get() as u64);
            let pinned = session.engine().host.containing(address).is_some();
            Ok(if pinned { Placed::Known(address) } else { Placed::Lent(Lent(at.as_ptr())) })
        }
        _ => Err(DriverError::unknown_place(call)),
    }
}
