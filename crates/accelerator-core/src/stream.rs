//! Streams and their pools.

mod after_captures;
mod captures;
#[cfg(test)]
#[cfg(loom)]
pub(crate) mod modelled;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::after_captures::AfterCaptures;
pub(crate) use self::captures::CaptureCount;
use crate::backend::{Backend, StreamKind};
use crate::sync::{Table, lock};
use crate::types::{Device, DriverError, DriverErrorKind, DriverResult, Error, Result, StreamId};

/// The number of streams of one priority that [`Accelerator::stream`](crate::Accelerator::stream) makes before it hands
/// out the first again. PyTorch: `kStreamsPerPool`.
pub const STREAMS_PER_PRIORITY: usize = 32;

/// A stream of a device: work submitted to it runs in order, concurrently with the work of other streams.
///
/// This is a handle, and `Copy`. The stream itself lives as long as its device, so dropping a handle while work is
/// pending has no effect on that work. PyTorch: `torch.Stream`.
pub struct Stream<B: Backend>(&'static StreamState<B>);

const BEING_CAPTURED: DriverError = DriverError::refused(
    DriverErrorKind::InvalidArgument,
    "copy",
    "the stream is being captured as a graph, for which the host's memory may be gone",
);

struct StreamState<B: Backend> {
    id: StreamId,
    owner: Instance,
    priority: i32,
    backend: &'static B,
    native: B::Stream,
}

impl<B: Backend> Stream<B> {
    /// The number of the stream.
    pub fn id(self) -> StreamId {
        self.0.id
    }

    /// The device of the stream.
    pub fn device(self) -> Device {
        self.0.owner.device
    }

    /// The priority of the stream; a lower number runs first.
    pub fn priority(self) -> i32 {
        self.0.priority
    }

    /// The driver's stream.
    pub fn native(self) -> &'static B::Stream {
        &self.0.native
    }

    /// The driver of the device.
    pub fn backend(self) -> &'static B {
        self.0.backend
    }

    /// Waits until everything submitted to the stream so far is done. PyTorch: `torch.Stream.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`], also for errors of the work itself.
    pub fn synchronize(self) -> Result<()> {
        self.0.owner.device.driver_result(self.0.backend.synchronize(&self.0.native))
    }

    /// Whether everything submitted to the stream so far is done. PyTorch: `torch.Stream.query`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn is_idle(self) -> Result<bool> {
        self.0.owner.device.driver_result(self.0.backend.is_idle(&self.0.native))
    }

    /// Whether work submitted to the stream is captured in a graph instead of run. PyTorch:
    /// `torch.Stream.is_capturing`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn is_capturing(self) -> Result<bool> {
        self.0.owner.device.driver_result(self.0.backend.is_capturing(&self.0.native))
    }

    /// Fails while work on the stream is captured. This comes ahead of a copy of host memory that is lent for one call:
    /// captured, the copy would run at each launch of the graph.
    pub(crate) fn refuse_capture(self) -> DriverResult<()> {
        match self.0.backend.is_capturing(&self.0.native)? {
            true => Err(BEING_CAPTURED),
            false => Ok(()),
        }
    }

    /// The device instance that the stream belongs to.
    pub(crate) fn owner(self) -> Instance {
        self.0.owner
    }

    /// Fails unless the stream belongs to this device instance.
    pub(crate) fn check(self, instance: Instance) -> Result<()> {
        self.owner().check(instance, "the stream")
    }
}

impl<B: Backend> Clone for Stream<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Stream<B> {}

impl<B: Backend> PartialEq for Stream<B> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<B: Backend> Eq for Stream<B> {}

impl<B: Backend> fmt::Debug for Stream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StreamState { id, owner, priority, native, .. } = self.0;
        let device = owner.device;
        write!(f, "Stream {{ {device}, id: {id}, priority: {priority}, native: {native:?} }}")
    }
}

/// One instance of a device, to which streams, events and memory belong.
///
/// Instances are numbered, since neither the device nor the address of its driver distinguishes two of them: a driver
/// may be zero-sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) device: Device,
    pub(crate) number: u64,
}

impl Instance {
    pub(crate) fn new(device: Device) -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Self { device, number: OPENED.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns an error unless this instance, to which `what` belongs, is `expected`.
    pub(crate) fn check(self, expected: Self, what: &'static str) -> Result<()> {
        if self.number == expected.number { Ok(()) } else { Err(self.mismatch(expected, what)) }
    }

    /// Returns the error that this instance, to which `what` belongs, is not `expected`.
    pub(crate) fn mismatch(self, expected: Self, what: &'static str) -> Error {
        Error::DeviceMismatch { what, expected: expected.device, found: self.device }
    }
}

/// All streams of one device instance, by number, and the pools.
pub(crate) struct Streams<B: Backend> {
    pub(crate) owner: Instance,
    pub(crate) backend: &'static B,
    table: Table<StreamState<B>>,
    /// By priority.
    pools: Mutex<BTreeMap<i32, Pool<B>>>,
    pub(crate) captures: CaptureCount,
}

/// The streams of one priority, handed out in turn.
struct Pool<B: Backend> {
    streams: Vec<Stream<B>>,
    next: usize,
}

impl<B: Backend> Streams<B> {
    pub(crate) fn new(owner: Instance, backend: &'static B) -> Self {
        let (table, pools, captures) = Default::default();
        Self { owner, backend, table, pools, captures }
    }

    pub(crate) fn get(&'static self, id: StreamId) -> Option<Stream<B>> {
        self.table.get(id.0).map(Stream)
    }

    pub(crate) fn iter(&'static self) -> impl Iterator<Item = Stream<B>> {
        self.table.iter().map(Stream)
    }

    /// The next stream of the pool of this priority, clamped to the device's range.
    pub(crate) fn next_of_pool(&'static self, priority: i32) -> Result<Stream<B>> {
        let priority = self.clamp(priority);
        let mut pools = lock(&self.pools);
        let pool = pools.entry(priority).or_insert(Pool { streams: Vec::new(), next: 0 });
        if pool.next == pool.streams.len() {
            pool.streams.push(self.make(priority)?);
        }
        let stream = pool.streams[pool.next];
        pool.next = (pool.next + 1) % STREAMS_PER_PRIORITY;
        Ok(stream)
    }

    /// A stream outside the pools.
    pub(crate) fn create(&'static self, priority: i32) -> Result<Stream<B>> {
        let _making = lock(&self.pools);
        self.make(self.clamp(priority))
    }

    /// Registers a stream that was made elsewhere. The first is the device's default stream.
    pub(crate) fn adopt(&'static self, native: B::Stream) -> Stream<B> {
        self.add(0, native)
    }

    fn clamp(&self, priority: i32) -> i32 {
        let (least, greatest) = self.backend.properties().stream_priorities;
        priority.max(greatest).min(least)
    }

    /// The caller holds a lock, also across the driver call: making a stream is rare, and streams are numbered in the
    /// order in which the driver makes them.
    fn make(&'static self, priority: i32) -> Result<Stream<B>> {
        let made = self.backend.stream(StreamKind::Side { priority });
        Ok(self.add(priority, self.owner.device.driver_result(made)?))
    }

    fn add(&'static self, priority: i32, native: B::Stream) -> Stream<B> {
        let (owner, backend) = (self.owner, self.backend);
        let (_, state) = self.table.push(|id| StreamState { id: StreamId(id), owner, priority, backend, native });
        Stream(state)
    }
}
