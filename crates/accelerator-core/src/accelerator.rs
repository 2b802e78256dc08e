//! One opened device: its driver, streams, events and memory together.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::alloc::{AllocatorConfig, CachingAllocator};
use crate::backend::{Backend, EventFlags, StreamKind};
use crate::event::Event;
use crate::pinned::{CachingHostAllocator, PinnedBuffer};
use crate::stream::{Instance, Stream, Streams};
use crate::sync::lock;
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
}

impl<B: Backend> Accelerator<B> {
    /// How many devices there are; 0 where there is no driver.
    pub fn count() -> u32 {
        B::probe().unwrap_or(0)
    }

    /// The device with this number, opened at the first call; the same one at each call. The allocator's settings
    /// are those of the environment.
    ///
    /// # Errors
    /// [`Error::NoAccelerator`], [`Error::InvalidDevice`], [`Error::InvalidSetting`], [`Error::Driver`].
    pub fn open(ordinal: u32) -> Result<&'static Self> {
        let mut opened = lock(&OPENED);
        let key = (TypeId::of::<B>(), ordinal);
        if let Some(accelerator) = opened.get(&key).and_then(|any| any.downcast_ref::<Self>()) {
            return Ok(accelerator);
        }
        let kind = B::KIND;
        let count = B::probe().map_err(|why| Error::no_accelerator(kind, &why))?;
        if ordinal >= count {
            return Err(Error::InvalidDevice { kind, index: ordinal.into(), count });
        }
        let config = AllocatorConfig::from_environment()?;
        let device = Device { kind, index: ordinal };
        let backend = device.driver_result(B::open(ordinal))?;
        let accelerator = Self::new(backend, ordinal, config)?;
        opened.insert(key, accelerator);
        Ok(accelerator)
    }

    /// The device with this number if [`open`](Self::open) has opened it; opens nothing.
    pub fn opened(ordinal: u32) -> Option<&'static Self> {
        lock(&OPENED).get(&(TypeId::of::<B>(), ordinal)).and_then(|any| any.downcast_ref::<Self>())
    }

    /// A device instance of its own around this driver, with streams and an allocator of its own: for drivers that
    /// are opened with options, and for tests. Never closed.
    ///
    /// # Errors
    /// [`Error::Driver`] where the default stream cannot be made.
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
        })))
    }

    /// Its kind and number.
    pub fn device(&self) -> Device {
        self.instance.device
    }

    pub(crate) fn instance(&self) -> Instance {
        self.instance
    }

    /// Its driver.
    pub fn backend(&self) -> &'static B {
        self.backend
    }

    /// Its allocator.
    pub fn allocator(&self) -> &CachingAllocator<B> {
        &self.allocator
    }

    /// The allocator of its pinned host memory.
    pub fn host_allocator(&self) -> &'static CachingHostAllocator<B> {
        self.host_allocator
    }

    /// What the device says about itself.
    pub fn properties(&self) -> &'static DeviceProperties {
        self.backend.properties()
    }

    /// Free and total memory now, as the driver tells it. PyTorch: `torch.accelerator.get_memory_info`.
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

    /// The next stream of the pool of this priority: 32 are made, then handed out again in turn. A priority outside
    /// the device's range becomes the nearest in it. PyTorch: `getStreamFromPool`, `torch.Stream`.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn stream(&self, priority: i32) -> Result<Stream<B>> {
        self.streams.next_of_pool(priority)
    }

    /// A stream of its own, outside the pools. It lives as long as the device, so make few.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn dedicated_stream(&self, priority: i32) -> Result<Stream<B>> {
        self.streams.create(priority)
    }

    /// A stream that another library made, for work of ours. It counts as one of priority 0, and stays as long as the
    /// device. PyTorch: `getStreamFromExternal`, `torch.cuda.ExternalStream`.
    ///
    /// # Safety
    /// * `native` is a stream of this device's [`backend`](Self::backend) and no other's, and keeps what [`Backend`]
    ///   says of streams.
    #[allow(unsafe_code)] // the promise is the caller's
    pub unsafe fn external_stream(&self, native: B::Stream) -> Stream<B> {
        self.streams.adopt(native)
    }

    /// The stream with this number, if it was made.
    pub fn stream_by_id(&self, id: StreamId) -> Option<Stream<B>> {
        self.streams.get(id)
    }

    /// A new event.
    pub fn event(&self, flags: EventFlags) -> Event<B> {
        Event::new(self.instance, self.backend, flags)
    }

    /// Allocates pinned host memory of `len` bytes, for copies that run beside the program; its contents are whatever was
    /// there. PyTorch: `pin_memory=True`.
    ///
    /// # Errors
    /// As [`CachingHostAllocator::allocate`].
    pub fn allocate_host(&self, len: u64) -> Result<PinnedBuffer<B>> {
        self.host_allocator.allocate(len)
    }

    /// Waits until everything submitted to all its streams so far is done. PyTorch:
    /// `torch.accelerator.synchronize`.
    ///
    /// # Errors
    /// [`Error::Driver`]: of several the first, after all were waited for.
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
