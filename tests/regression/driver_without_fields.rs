//! All values of a zero-sized type may have the same address, so a driver's address does not identify its instance.
#![allow(unsafe_code)]

use std::num::NonZeroU64;
use std::sync::LazyLock;

use accelerator_conformance::{Sim, SimEvent, SimPtr, SimStream};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DeviceKind, DeviceProperties, DriverResult, Error, EventFlags, MemoryInfo,
    Place, StreamKind, Unavailable,
};

static SIM: LazyLock<Sim> = LazyLock::new(Sim::default);

struct Fieldless;

// SAFETY: All calls go to one simulated device.
unsafe impl Backend for Fieldless {
    const KIND: DeviceKind = DeviceKind::new("fieldless");
    type Ptr = SimPtr;
    type Stream = SimStream;
    type Event = SimEvent;

    fn probe() -> Result<u32, Unavailable> {
        Sim::probe()
    }

    fn open(_ordinal: u32) -> DriverResult<Self> {
        Ok(Self)
    }

    fn properties(&self) -> &DeviceProperties {
        SIM.properties()
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        SIM.memory_info()
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<SimStream> {
        SIM.stream(kind)
    }

    fn synchronize(&self, stream: &SimStream) -> DriverResult<()> {
        SIM.synchronize(stream)
    }

    fn is_idle(&self, stream: &SimStream) -> DriverResult<bool> {
        SIM.is_idle(stream)
    }

    fn event(&self, flags: EventFlags) -> DriverResult<SimEvent> {
        SIM.event(flags)
    }

    fn record(&self, event: &SimEvent, stream: &SimStream) -> DriverResult<()> {
        SIM.record(event, stream)
    }

    fn wait(&self, stream: &SimStream, event: &SimEvent) -> DriverResult<()> {
        SIM.wait(stream, event)
    }

    fn is_complete(&self, event: &SimEvent) -> DriverResult<bool> {
        SIM.is_complete(event)
    }

    fn elapsed_ns(&self, start: &SimEvent, end: &SimEvent) -> DriverResult<i64> {
        SIM.elapsed_ns(start, end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<SimPtr> {
        SIM.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: SimPtr, len: NonZeroU64) {
        // SAFETY: The caller guarantees the same.
        unsafe { SIM.dealloc(ptr, len) }
    }

    unsafe fn copy(&self, to: Place<SimPtr>, from: Place<SimPtr>, len: NonZeroU64, on: &SimStream) -> DriverResult<()> {
        // SAFETY: The caller guarantees the same.
        unsafe { SIM.copy(to, from, len, on) }
    }

    unsafe fn fill(&self, dst: SimPtr, value: u8, len: NonZeroU64, stream: &SimStream) -> DriverResult<()> {
        // SAFETY: The caller guarantees the same.
        unsafe { SIM.fill(dst, value, len, stream) }
    }
}

#[test]
fn its_instances_are_told_apart() {
    let [one, other] = [0, 1].map(|index| Accelerator::new(Fieldless, index, AllocatorConfig::default()).unwrap());
    let bytes = NonZeroU64::new(4096).unwrap();
    let mismatch = |error: &Error| matches!(error, Error::DeviceMismatch { .. });
    assert!(mismatch(&one.allocator().allocate(bytes, other.default_stream()).unwrap_err()));
    let allocation = one.allocator().allocate(bytes, one.default_stream()).unwrap();
    assert!(mismatch(&other.allocator().record_use(&allocation, other.default_stream()).unwrap_err()));
    let handed_back = other.allocator().free(allocation).unwrap_err();
    assert!(mismatch(&handed_back.error));
    one.allocator().free(handed_back.allocation).unwrap();
    assert!(mismatch(&one.event(EventFlags::default()).record(other.default_stream()).unwrap_err()));
}
