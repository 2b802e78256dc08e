//! A device without memory, for models.
#![allow(unsafe_code)] // the driver's trait

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

use loom::lazy_static;

use super::{Instance, Streams};
use crate::backend::{Backend, EventFlags, Place, StreamKind};
use crate::graphs::{CaptureMode, ExecutableGraph, Graphs};
use crate::sync::primitives::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::{
    Device, DeviceKind, DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, MemoryInfo,
    MemoryInfoSource, Unavailable,
};

/// The number of streams of [`Idle::streams`].
pub(crate) const STREAMS: u32 = 3;

/// The stream that can be captured. It is the current stream of all threads.
const CAPTURED: u32 = 0;

/// The memory of a device, in bytes.
const TOTAL: u64 = 1 << 30;

lazy_static! {
    /// The work of all streams: done, or not.
    static ref WORK: (AtomicBool, AtomicU64) = (AtomicBool::new(true), AtomicU64::new(0));
    /// What the driver has given out in this run. The number of the next address, and lengths by address.
    static ref MEMORY: Mutex<(u64, BTreeMap<u64, u64>)> = Mutex::new((1 << 20, BTreeMap::new()));
    /// How many captures have begun, and the number of the one underway.
    static ref CAPTURES: Mutex<(u64, Option<u64>)> = Mutex::new((0, None));
}

/// The only device. What it has given out, and the work that it has, are of one run of a model.
pub(crate) struct Idle(DeviceProperties);

/// An address, which is never used as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(u64);

impl DevicePtr for Address {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

impl Idle {
    /// Returns the same streams in every run, since nothing in them changes.
    pub(crate) fn streams() -> &'static Streams<Self> {
        static OPENED: OnceLock<&'static Streams<Idle>> = OnceLock::new();
        OPENED.get_or_init(|| {
            let backend = Box::leak(Box::new(Self(DeviceProperties::new("idle", TOTAL))));
            let owner = Instance::new(Device { kind: Self::KIND, index: 0 });
            let streams: &'static _ = Box::leak(Box::new(Streams::new(owner, &*backend)));
            (0..STREAMS).for_each(|stream| {
                streams.adopt(stream);
            });
            streams
        })
    }

    /// From now on, no work that is submitted is done.
    pub(crate) fn begin_work() {
        WORK.0.store(false, Ordering::Release);
    }

    /// All work is done from now on.
    pub(crate) fn end_work() {
        WORK.0.store(true, Ordering::Release);
    }

    /// Begins to capture the first stream. Returns the number of the capture.
    pub(crate) fn begin_capture() -> u64 {
        Self::call();
        let mut captures = CAPTURES.lock().unwrap();
        captures.0 += 1;
        captures.1 = Some(captures.0);
        captures.0
    }

    pub(crate) fn end_capture() {
        Self::call();
        CAPTURES.lock().unwrap().1 = None;
    }

    /// Returns how many pieces of memory have not been given back, of the device and of the host.
    pub(crate) fn count_of_pieces() -> usize {
        Self::call(); // loom must know that the result depends on other calls
        MEMORY.lock().unwrap().1.len()
    }

    fn take(len: NonZeroU64) -> u64 {
        Self::call();
        let mut memory = MEMORY.lock().unwrap();
        let address = memory.0;
        memory.0 += len.get().next_multiple_of(1 << 20);
        memory.1.insert(address, len.get());
        address
    }

    fn give_back(address: u64, len: NonZeroU64) {
        Self::call();
        let given = MEMORY.lock().unwrap().1.remove(&address);
        assert_eq!(given, Some(len.get()), "memory goes back once, as it came");
    }

    /// A call of the driver, between whose beginning and end other threads may run.
    fn call() {
        WORK.1.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: No memory of the device is ever accessed. Addresses are given out once.
unsafe impl Backend for Idle {
    const KIND: DeviceKind = DeviceKind::new("idle");
    type Ptr = Address;
    type Stream = u32;
    type Event = ();

    fn probe() -> Result<u32, Unavailable> {
        Ok(1)
    }

    fn open(_: u32) -> DriverResult<Self> {
        Err(UNUSED)
    }

    fn properties(&self) -> &DeviceProperties {
        &self.0
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(MemoryInfo::new(TOTAL, TOTAL, MemoryInfoSource::Driver))
    }

    fn stream(&self, _: StreamKind) -> DriverResult<u32> {
        Err(UNUSED)
    }

    fn synchronize(&self, _: &u32) -> DriverResult<()> {
        Ok(())
    }

    fn is_idle(&self, _: &u32) -> DriverResult<bool> {
        Ok(WORK.0.load(Ordering::Acquire))
    }

    fn event(&self, _: EventFlags) -> DriverResult<()> {
        Ok(())
    }

    fn record(&self, (): &(), _: &u32) -> DriverResult<()> {
        Self::call();
        Ok(())
    }

    fn wait(&self, _: &u32, (): &()) -> DriverResult<()> {
        Ok(())
    }

    fn is_complete(&self, (): &()) -> DriverResult<bool> {
        Ok(WORK.0.load(Ordering::Acquire))
    }

    fn wait_host(&self, (): &()) -> DriverResult<()> {
        while !WORK.0.load(Ordering::Acquire) {
            crate::sync::primitives::thread::yield_now();
        }
        Ok(())
    }

    fn elapsed_ns(&self, (): &(), (): &()) -> DriverResult<i64> {
        Err(UNUSED)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<Address> {
        Ok(Address(Self::take(len)))
    }

    unsafe fn dealloc(&self, ptr: Address, len: NonZeroU64) {
        Self::give_back(ptr.0, len);
    }

    unsafe fn copy(&self, _: Place<Address>, _: Place<Address>, _: NonZeroU64, _: &u32) -> DriverResult<()> {
        Err(UNUSED)
    }

    unsafe fn fill(&self, _: Address, _: u8, _: NonZeroU64, _: &u32) -> DriverResult<()> {
        Err(UNUSED)
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let address = usize::try_from(Self::take(len)).map_err(|_| UNUSED)?;
        NonNull::new(std::ptr::without_provenance_mut(address)).ok_or(UNUSED)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, len: NonZeroU64) {
        Self::give_back(ptr.addr().get() as u64, len);
    }

    fn is_capturing(&self, stream: &u32) -> DriverResult<bool> {
        Ok(self.capture_of(stream)?.is_some())
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }
}

// SAFETY: There is no work.
unsafe impl Graphs<Self> for Idle {
    fn begin(&self, _: &u32, _: CaptureMode) -> DriverResult<()> {
        Err(UNUSED)
    }

    fn end(&self, _: &u32) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        Err(UNUSED)
    }

    /// No step of its own, since all that use the device ask for it.
    fn capture_of(&self, stream: &u32) -> DriverResult<Option<u64>> {
        Ok(CAPTURES.lock().unwrap().1.filter(|_| *stream == CAPTURED))
    }
}

const UNUSED: DriverError = DriverError::refused(DriverErrorKind::Unsupported, "idle", "no model needs it");
