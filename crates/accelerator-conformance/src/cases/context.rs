//! The context of a case: its devices and their helpers.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, Backend, Buffer, DevicePtr, Event, EventFlags, HostStatistics, MIB,
    MemPool, MemPoolId, MemPoolOptions, PinnedBuffer, Policy, Result, Statistics, Stream,
};

use super::Outcome;
use super::consistency::check_consistency;
use crate::calls::Call;
use crate::controls::Controls;
use crate::erased::{AnyBackend, Opener};
use crate::faulty::{FailingCalls, Faulty};
use crate::outcome::Failure;
use crate::progress::limit;
use crate::raw::bytes;
use crate::suite::Capability;

/// The memory of a case's devices, unless it asks for another amount.
const MEMORY: u64 = 512 * MIB;

/// Gives a case its devices and cleans up after it.
pub(crate) struct Context {
    suite: String,
    opener: Opener,
    inner: Arc<AnyBackend>,
    lacks: Vec<Capability>,
    policy: Policy,
    /// The calls that fail on all devices of the case.
    failing: Option<Arc<FailingCalls>>,
    devices: Mutex<Vec<Device>>,
}

/// The driver of every case.
pub(super) type Driver = Faulty<AnyBackend>;

/// A device instance with a fresh allocator, around the driver that all cases share.
#[derive(Clone, Copy)]
pub(crate) struct Device(&'static Accelerator<Driver>);

impl Deref for Device {
    type Target = Accelerator<Driver>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Context {
    pub(crate) fn new(
        suite: String,
        opener: Opener,
        inner: Arc<AnyBackend>,
        lacks: Vec<Capability>,
        policy: Policy,
    ) -> Self {
        Self { suite, opener, inner, lacks, policy, failing: None, devices: Mutex::new(Vec::new()) }
    }

    /// Makes these calls fail on all devices of the case.
    pub(crate) fn with_failing(self, calls: Arc<FailingCalls>) -> Self {
        Self { failing: Some(calls), ..self }
    }

    /// Returns a driver around the one that all cases share.
    fn driver(&self) -> Driver {
        let driver = Faulty::new(Arc::clone(&self.inner));
        match &self.failing {
            Some(calls) => driver.with_failing(Arc::clone(calls)),
            None => driver,
        }
    }

    /// Returns the name of the suite.
    #[cfg(target_os = "linux")]
    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    /// Returns the opener, which opens devices as a program does: each with its own driver and without faults.
    pub(super) fn opener(&self) -> Opener {
        self.opener
    }

    pub(super) fn offers(&self, capability: Capability) -> bool {
        !self.lacks.contains(&capability)
    }

    pub(super) fn has_virtual_memory(&self) -> bool {
        self.inner.virtual_memory().is_some()
    }

    /// Whether there is virtual memory, and other processes can import memory that comes from it.
    #[cfg(target_os = "linux")]
    pub(super) fn shares_virtual_memory(&self) -> bool {
        self.has_virtual_memory() && self.inner.exports_pages()
    }

    /// Whether, as under the policy `compact`, a thread that needs new memory waits for other threads that obtain or
    /// release memory.
    pub(super) fn is_compact(&self) -> bool {
        self.policy == Policy::Compact
    }

    pub(super) fn device(&self) -> Result<Device> {
        self.device_with(MEMORY, "")
    }

    /// Returns a device of at most this much memory, with these allocator settings.
    pub(super) fn device_with(&self, memory: u64, settings: &str) -> Result<Device> {
        self.around(self.driver().with_memory(memory), settings)
    }

    /// Returns a device with expandable segments, if the driver has virtual memory.
    pub(super) fn expandable_device(&self) -> Result<Device> {
        self.device_with(MEMORY, "expandable_segments:True")
    }

    /// Returns a device with all the memory of the driver.
    pub(super) fn whole_device(&self) -> Result<Device> {
        self.around(self.driver(), "")
    }

    /// Returns the configuration that these settings give on a device of this case.
    pub(super) fn config(&self, settings: &str) -> Result<AllocatorConfig> {
        AllocatorConfig { policy: self.policy, ..AllocatorConfig::default() }.updated(settings)
    }

    /// Returns a device that has another number, around the same driver.
    #[cfg(target_os = "linux")]
    pub(super) fn device_numbered(&self, number: u32) -> Result<Device> {
        self.numbered(self.driver(), number, "")
    }

    fn around(&self, driver: Driver, settings: &str) -> Result<Device> {
        self.numbered(driver, 0, settings)
    }

    fn numbered(&self, driver: Driver, number: u32, settings: &str) -> Result<Device> {
        let config = self.config(settings)?;
        let device = Device(Accelerator::new(driver, number, config)?);
        self.made().push(device);
        Ok(device)
    }

    /// Gives everything back to the driver, whatever the result of the case. A case that passed must not have left
    /// anything.
    #[allow(unsafe_code)] // `Faulty::reclaim`
    pub(crate) fn finish(self, passed: bool) -> Outcome {
        let mut outcome = Ok(());
        for device in self.made().drain(..) {
            device.backend().clear_failures();
            device.backend().release_all();
            // The host cache keeps memory that streams still use. Earlier failures have been reported already.
            let _ = device.synchronize();
            let emptied = device.allocator().empty_cache().and(device.host_allocator().empty_cache());
            let emptied = emptied.map_err(Failure::from);
            if passed {
                outcome = outcome.and(emptied).and(nothing_left(device));
            }
            // SAFETY: The case is over, its buffers have been dropped, and the device is not used again.
            unsafe { device.backend().reclaim() };
        }
        outcome
    }

    pub(super) fn made(&self) -> MutexGuard<'_, Vec<Device>> {
        lock(&self.devices)
    }
}

fn nothing_left(device: Device) -> Outcome {
    let (live, misuses) = (device.backend().live_allocations(), device.backend().misuses());
    if live > 0 {
        return Err(format!("{live} driver allocations were left behind").into());
    }
    device.check_reservations();
    let host = device.backend().live_host_allocations();
    if host > 0 {
        return Err(format!("{host} driver allocations of host memory were left behind").into());
    }
    if misuses > 0 {
        return Err(format!(
            "{misuses} driver calls freed, mapped or unmapped memory that was not live, or was still in use"
        )
        .into());
    }
    let snapshot = device.allocator().snapshot();
    match snapshot.segments.is_empty() {
        true => Ok(()),
        false => Err(format!("segments were left behind: {snapshot:?}").into()),
    }
}

impl Device {
    /// Returns a stream other than the default one.
    pub(super) fn side_stream(self) -> Result<Stream<Driver>> {
        self.stream(0)
    }

    pub(super) fn alloc(self, bytes: u64) -> Result<Allocation<Driver>> {
        self.alloc_on(bytes, self.default_stream())
    }

    /// Allocates on the stream, at least 1 byte.
    pub(super) fn alloc_on(self, bytes: u64, stream: Stream<Driver>) -> Result<Allocation<Driver>> {
        let bytes = NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN);
        self.0.allocator().allocate(bytes, stream)
    }

    /// Returns the device with the lifetime that private pools and graphs need.
    pub(super) fn accelerator(self) -> &'static Accelerator<Driver> {
        self.0
    }

    /// Makes a private pool with the default options.
    pub(super) fn pool(self) -> Result<MemPool<Driver>> {
        MemPool::new(self.0, MemPoolOptions::default())
    }

    /// Allocates on the default stream from this pool.
    pub(super) fn alloc_in(self, pool: &MemPool<Driver>, bytes: u64) -> Result<Allocation<Driver>> {
        self.alloc_in_on(pool, bytes, self.default_stream())
    }

    /// Allocates on a stream from this pool.
    pub(super) fn alloc_in_on(
        self,
        pool: &MemPool<Driver>,
        bytes: u64,
        stream: Stream<Driver>,
    ) -> Result<Allocation<Driver>> {
        let _guard = pool.use_pool();
        self.alloc_on(bytes, stream)
    }

    /// Returns the private pool whose segments contain this memory, according to the snapshot.
    pub(super) fn pool_of(self, allocation: &Allocation<Driver>) -> Option<MemPoolId> {
        let (at, snapshot) = (address(allocation), self.allocator().snapshot());
        let mut segments = snapshot.segments.iter();
        let found = segments.find(|segment| (segment.address..segment.address + segment.total_size).contains(&at));
        found.map(|segment| segment.mem_pool)
    }

    pub(super) fn free(self, allocation: Allocation<Driver>) -> Result<()> {
        Ok(self.0.allocator().free(allocation)?)
    }

    pub(super) fn free_all(self, all: impl IntoIterator<Item = Allocation<Driver>>) -> Result<()> {
        all.into_iter().try_for_each(|allocation| self.free(allocation))
    }

    pub(super) fn buffer(self, bytes: u64, stream: Stream<Driver>) -> Result<Buffer<Driver>> {
        self.0.allocate(bytes, stream)
    }

    /// Returns a buffer on the default stream that is already filled with one value.
    pub(super) fn filled(self, bytes: u64, value: u8) -> Result<Buffer<Driver>> {
        let stream = self.default_stream();
        let mut buffer = self.buffer(bytes, stream)?;
        buffer.fill(value, stream)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// Returns pinned memory that is filled with one value.
    pub(super) fn pinned(self, bytes: u64, value: u8) -> Result<PinnedBuffer<Driver>> {
        let mut pinned = self.allocate_host(bytes)?;
        pinned.bytes_mut()?.fill(value);
        Ok(pinned)
    }

    pub(super) fn plain_event(self) -> Event<Driver> {
        self.event(EventFlags::default())
    }

    /// Returns an event recorded on the stream now.
    pub(super) fn recorded(self, stream: Stream<Driver>) -> Result<Event<Driver>> {
        let event = self.plain_event();
        event.record(stream)?;
        Ok(event)
    }

    pub(super) fn hold(self, stream: Stream<Driver>) {
        self.backend().hold(stream.native());
    }

    pub(super) fn release(self, stream: Stream<Driver>) {
        self.backend().release(stream.native());
    }

    /// Makes the stream claim that it is being captured.
    pub(super) fn claim_capture(self, stream: Stream<Driver>) -> ClaimedCapture {
        self.backend().set_capturing(stream.native(), true);
        ClaimedCapture { device: self, stream }
    }

    pub(super) fn calls(self, call: Call) -> u64 {
        self.backend().calls().of(call)
    }

    pub(super) fn all_calls(self) -> u64 {
        self.backend().calls().total()
    }

    pub(super) fn statistics(self) -> Statistics {
        self.allocator().statistics()
    }

    pub(super) fn reserved(self) -> u64 {
        self.statistics().reserved_bytes.all.current.unsigned_abs()
    }

    pub(super) fn host_statistics(self) -> HostStatistics {
        self.host_allocator().statistics()
    }

    /// Checks that no more than the allowed address space is still reserved. All memory is given back, but a segment
    /// whose first page was refused may keep its addresses, which cost nothing: one segment per stream and pool.
    /// PyTorch keeps these too.
    pub(super) fn check_reservations(self) {
        let (reservations, streams) = (self.backend().live_reservations() as u64, self.calls(Call::Stream));
        assert!(reservations <= 2 * streams, "{reservations} reservations of {streams} streams were left behind");
    }

    /// Checks that statistics, snapshot and driver agree. Call it only while no other thread works.
    pub(super) fn check_consistency(self) {
        check_consistency(self);
    }
}

/// A claim that a stream is being captured. It ends when this is dropped, also by a case that fails.
pub(super) struct ClaimedCapture {
    device: Device,
    stream: Stream<Driver>,
}

impl Drop for ClaimedCapture {
    fn drop(&mut self) {
        self.device.backend().set_capturing(self.stream.native(), false);
    }
}

/// Returns the bytes of a buffer after all work of the stream so far.
pub(super) fn bytes_of(buffer: &Buffer<Driver>, stream: Stream<Driver>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; buffer.len() as usize];
    buffer.read(0, &mut bytes, stream)?;
    Ok(bytes)
}

/// Checks that every byte of the buffer is `value`. `sentence` says what should be so.
pub(super) fn holds(buffer: &Buffer<Driver>, value: u8, stream: Stream<Driver>, sentence: &str) -> Outcome {
    all_are(&bytes_of(buffer, stream)?, value, sentence)
}

/// Checks that every byte is `value`. `sentence` says what should be so.
pub(super) fn all_are(bytes: &[u8], value: u8, sentence: &str) -> Outcome {
    bytes::all(bytes, value).map_err(|difference| format!("{sentence}, but {difference}").into())
}

/// Checks that the bytes are those that are expected. `sentence` says what should be so.
pub(super) fn are(bytes: &[u8], expected: &[u8], sentence: &str) -> Outcome {
    bytes::equal(bytes, expected).map_err(|difference| format!("{sentence}, but {difference}").into())
}

/// Whether the stream, which has no work of ours, is or soon becomes idle: a driver may have queued work of its own.
pub(super) fn becomes_idle(stream: Stream<Driver>) -> Result<bool> {
    let start = Instant::now();
    while !stream.is_idle()? {
        if start.elapsed() > limit() {
            return Ok(false);
        }
        std::thread::yield_now();
    }
    Ok(true)
}

/// Returns the address of an allocation, for comparison.
pub(super) fn address(allocation: &Allocation<Driver>) -> u64 {
    allocation.ptr().trace_address()
}
