//! One opened device: its driver, streams, events and memory together.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use crate::alloc::{AllocatorConfig, CachingAllocator};
use crate::backend::{Backend, EventFlags, StreamKind};
use crate::current::{current_stream, exchange_current_stream};
use crate::event::Event;
use crate::pinned::{CachingHostAllocator, PinnedBuffer};
use crate::stream::{CaptureCount, Instance, Stream, Streams};
use crate::sync::{InUse, lock};
use crate::types::{Device, DeviceProperties, Error, MemoryInfo, Result, StreamId};

/// The devices that [`Accelerator::open`] has opened, by backend and number.
type Opened = BTreeMap<(TypeId, u32), &'static (dyn Any + Send + Sync)>;
static OPENED: Mutex<Opened> = Mutex::new(Opened::new());

/// One device, opened. It stays open until the process ends: drivers may be gone before the last destructor runs.
pub struct Accelerator<B: Backend> {
    instance: Instance,
    backend: &'static B,
    streams: &'static Streams<B>,
    default_stream: Stream<B>,
    allocator: CachingAllocator<B>,
    host_allocator: &'static CachingHostAllocator<B>,
    /// Values in use that there is one of, by name.
    unique: Mutex<InUse<Vec<u8>, dyn Any + Send + Sync>>,
}

impl<B: Backend> Accelerator<B> {
    /// The number of devices; 0 if there is no driver.
    pub fn count() -> u32 {
        B::probe().unwrap_or(0)
    }

    /// The device with this number. The first call opens it, with the allocator's settings from the environment; later
    /// calls return the same one.
    ///
    /// # Errors
    /// [`Error::NoAccelerator`], [`Error::InvalidDevice`], [`Error::InvalidSetting`], [`Error::Driver`].
    pub fn open(ordinal: u32) -> Result<&'static Self> {
        if let Some(accelerator) = Self::opened(ordinal) {
            return Ok(accelerator);
        }
        let kind = B::KIND;
        let count = B::probe().map_err(|why| Error::no_accelerator(kind, &why))?;
        if ordinal >= count {
            return Err(Error::InvalidDevice { kind, index: ordinal.into(), count });
        }
        // Called without a lock, since it may warn, and the program's subscriber may call this library.
        let config = AllocatorConfig::from_environment()?;
        let mut opened = lock(&OPENED);
        if let Some(accelerator) = Self::find(&opened, ordinal) {
            return Ok(accelerator); // another thread was faster
        }
        let device = Device { kind, index: ordinal };
        let backend = device.driver_result(B::open(ordinal))?;
        let accelerator = Self::new(backend, ordinal, config)?;
        opened.insert((TypeId::of::<B>(), ordinal), accelerator);
        Ok(accelerator)
    }

    /// The device with this number if [`open`](Self::open) has opened it. Never opens a device.
    pub fn opened(ordinal: u32) -> Option<&'static Self> {
        Self::find(&lock(&OPENED), ordinal)
    }

    fn find(opened: &Opened, ordinal: u32) -> Option<&'static Self> {
        opened.get(&(TypeId::of::<B>(), ordinal)).and_then(|any| any.downcast_ref::<Self>())
    }

    /// A separate device instance around this driver, with its own streams and allocator: for drivers that are opened
    /// with options, and for tests. It is never closed.
    ///
    /// # Errors
    /// [`Error::Driver`] if the default stream cannot be made.
    pub fn new(backend: B, ordinal: u32, config: AllocatorConfig) -> Result<&'static Self> {
        let device = Device { kind: backend.kind(), index: ordinal };
        let default = device.driver_result(backend.stream(StreamKind::Default))?;
        let instance = Instance::new(device);
        let backend: &'static B = Box::leak(Box::new(backend));
        let streams: &'static Streams<B> = Box::leak(Box::new(Streams::new(instance, backend)));
        let default_stream = streams.adopt(default);
        let allocator = CachingAllocator::new(streams, config);
        let host_allocator = CachingHostAllocator::new(streams, allocator.host_settings());
        let host_allocator = Box::leak(Box::new(host_allocator));
        Ok(Box::leak(Box::new(Self {
            instance,
            backend,
            streams,
            default_stream,
            allocator,
            host_allocator,
            unique: Mutex::default(),
        })))
    }

    /// The kind and number of the device.
    pub fn device(&self) -> Device {
        self.instance.device
    }

    pub(crate) fn instance(&self) -> Instance {
        self.instance
    }

    /// The driver of the device.
    pub fn backend(&self) -> &'static B {
        self.backend
    }

    /// The allocator of device memory.
    pub fn allocator(&self) -> &CachingAllocator<B> {
        &self.allocator
    }

    /// The allocator of pinned host memory.
    pub fn host_allocator(&self) -> &'static CachingHostAllocator<B> {
        self.host_allocator
    }

    /// The properties of the device.
    pub fn properties(&self) -> &'static DeviceProperties {
        self.backend.properties()
    }

    /// Free and total memory now, as the driver reports it. PyTorch: `torch.accelerator.get_memory_info`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.device().driver_result(self.backend.memory_info())
    }

    /// The default stream.
    pub fn default_stream(&self) -> Stream<B> {
        self.default_stream
    }

    /// The next stream of the pool of this priority. The pool makes 32 streams and then hands them out again in turn. A
    /// priority outside the device's range becomes the nearest one in it. PyTorch: `getStreamFromPool`, `torch.Stream`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn stream(&self, priority: i32) -> Result<Stream<B>> {
        self.streams.next_of_pool(priority)
    }

    /// A new stream outside the pools. It lives as long as the device, so make few.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn dedicated_stream(&self, priority: i32) -> Result<Stream<B>> {
        self.streams.create(priority)
    }

    /// Makes a stream of another library usable here. It counts as a stream of priority 0, and stays registered as long
    /// as the device. PyTorch: `getStreamFromExternal`, `torch.cuda.ExternalStream`.
    ///
    /// # Safety
    /// * `native` is a stream of this device's [`backend`](Self::backend), and it satisfies what [`Backend`] requires
    ///   of streams.
    #[allow(unsafe_code)] // the promise is the caller's
    pub unsafe fn external_stream(&self, native: B::Stream) -> Stream<B> {
        self.streams.adopt(native)
    }

    /// The stream with this number, if it exists.
    pub fn stream_by_id(&self, id: StreamId) -> Option<Stream<B>> {
        self.streams.get(id)
    }

    /// The current stream of this thread: at first the default stream. PyTorch: `torch.accelerator.current_stream`.
    ///
    /// The calls of this crate name their stream. The current stream only decides whether a free, a use of a memory
    /// pool, or a call that empties the cache is part of a capture: they are if the current stream captures.
    /// [`Graph::capture_begin`](crate::Graph::capture_begin) sets it.
    pub fn current_stream(&self) -> Stream<B> {
        self.existing_stream(current_stream(&self.instance))
    }

    /// Sets the current stream of this thread, and returns the previous one. PyTorch: `torch.accelerator.set_stream`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) for a stream of another device.
    pub fn set_current_stream(&self, stream: Stream<B>) -> Result<Stream<B>> {
        stream.check(self.instance)?;
        Ok(self.existing_stream(exchange_current_stream(&self.instance, stream.id())))
    }

    fn existing_stream(&self, id: StreamId) -> Stream<B> {
        match id {
            StreamId::DEFAULT => self.default_stream, // the usual one needs no look-up
            id => self.stream_by_id(id).unwrap_or(self.default_stream),
        }
    }

    /// A new event.
    pub fn event(&self, flags: EventFlags) -> Event<B> {
        Event::new(self.instance, self.backend, flags)
    }

    /// Allocates `len` bytes of pinned host memory, for copies that run concurrently with the program. The contents are
    /// unspecified. PyTorch: `pin_memory=True`.
    ///
    /// # Errors
    /// As [`CachingHostAllocator::allocate`].
    pub fn allocate_host(&self, len: u64) -> Result<PinnedBuffer<B>> {
        self.host_allocator.allocate(len)
    }

    /// The captures of the device's streams.
    pub(crate) fn captures(&self) -> &CaptureCount {
        &self.streams.captures
    }

    /// Notes that a capture has ended which is no [`Graph`](crate::Graph) and had no route of this device. Imports that
    /// were dropped meanwhile end now, unless streams that use them still capture.
    pub fn external_capture_ended(&self) {
        self.captures().ended_elsewhere();
        self.allocator.do_what_waits_for_captures();
    }

    /// Returns the value with this name if it is in use, and otherwise makes it.
    pub(crate) fn unique<T: Any + Send + Sync>(&self, name: Vec<u8>, make: impl FnOnce() -> T) -> Arc<T> {
        let made: Result<_, Infallible> = self.unique_or(name, || Ok(make()));
        made.unwrap_or_else(|never| match never {})
    }

    /// As [`unique`](Self::unique), where making it may fail.
    pub(crate) fn unique_or<T: Any + Send + Sync, E>(
        &self,
        name: Vec<u8>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut all = lock(&self.unique); // held meanwhile, so that it is made once
        all.forget_unused();
        if let Some(Ok(value)) = all.get(&name).map(Arc::downcast) {
            return Ok(value);
        }
        let made = Arc::new(make()?);
        let any: Arc<dyn Any + Send + Sync> = made.clone();
        all.insert(name, &any);
        Ok(made)
    }

    /// Waits until everything submitted so far to all streams of the device is done. PyTorch:
    /// `torch.accelerator.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`]: the first of several errors, after waiting for all streams.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.iter().map(Stream::synchronize).reduce(Result::and).unwrap_or(Ok(()))
    }
}

impl<B: Backend> std::fmt::Debug for Accelerator<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { instance: Instance { device, .. }, allocator, .. } = self;
        write!(f, "Accelerator {{ {device}, {:?}, {allocator:?} }}", self.properties().name)
    }
}
