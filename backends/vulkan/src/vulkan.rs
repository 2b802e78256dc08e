#![allow(unsafe_code)] // the backend trait is unsafe to implement

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{Accounting, SegmentTable, Streams, lock};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DevicePtr, DriverResult, EventFlags, Graphs, MemoryInfo, Place, StreamKind,
    Unavailable, VirtualMemory,
};
use ash::{ext, vk};

use crate::device::Device;
use crate::event::VulkanEvent;
use crate::library::library;
use crate::memory::{Allocation, Memory, VulkanPtr};
use crate::offer::Offer;
use crate::pinned::PinnedMemory;
use crate::staging::Staging;
use crate::stream::VulkanStream;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::timestamps::Timestamps;
use crate::virtual_memory::Pager;
use crate::{answer, devices};

/// A Vulkan device: buffers as memory, timeline semaphores as streams and events.
///
/// It hands out as much memory as the device has, or as `ACCELERATOR_VULKAN_CAPACITY` allows (such as `16GiB`). When it
/// is dropped, it waits for all work.
#[derive(Debug)]
pub struct Vulkan {
    pub(crate) device: Arc<Device>,
    /// The version of Vulkan that the instance was made for.
    pub(crate) version: u32,
    properties: DeviceProperties,
    pub(crate) accounting: Arc<Accounting>,
    /// Whether the driver tells how much memory is free.
    pub(crate) has_budget: bool,
    pub(crate) memory: Arc<Memory>,
    pub(crate) segments: Mutex<SegmentTable<Allocation>>,
    pub(crate) pinned: PinnedMemory,
    pub(crate) staging: Arc<Staging>,
    pub(crate) pager: Option<Pager>,
    pub(crate) table: Arc<Table>,
    timestamps: Arc<Timestamps>,
    /// The number of the queue of the next stream.
    next_queue: AtomicUsize,
    pub(crate) streams: Streams<Timeline>,
}

impl Vulkan {
    /// Opens the device with this number. It hands out at most `capacity` bytes; with `None`, as many as it has.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for a number out of range; errors of the
    /// driver.
    pub fn with_capacity(ordinal: u32, capacity: Option<u64>) -> DriverResult<Self> {
        let listed = devices::all().ok().and_then(|devices| devices.get(ordinal as usize));
        let no_device = answer::refused("vkEnumeratePhysicalDevices", "no device has this number");
        let (Some(listed), Ok(library)) = (listed, library()) else { return Err(no_device) };
        let instance = &library.instance;
        let offer = Offer::of(instance, listed.physical, library.version)?;
        let device = Device::create(instance, listed.physical, &offer, listed.queues)?;
        Self::new(device, &offer, capacity)
    }

    pub(crate) fn new(device: Arc<Device>, offer: &Offer, capacity: Option<u64>) -> DriverResult<Self> {
        let memory = Arc::new(Memory::new(&device, offer)?);
        let size = memory.segments.heap_size;
        let mut properties = DeviceProperties::new(offer.name.as_str(), capacity.unwrap_or(size).min(size));
        properties.driver = offer.driver.clone();
        properties.largest_allocation = offer.largest_allocation;
        properties.alignment = memory.alignment;
        properties.capability = offer.capability();
        properties.uuid = Some(offer.uuid);
        properties.pci_address = offer.pci_address;
        let accounting = Arc::new(Accounting::new(properties.total_memory));
        let staging = Arc::new(Staging::new(&memory));
        Ok(Self {
            version: offer.version(),
            pager: Pager::new(&memory, offer, &accounting, &staging)?,
            accounting,
            properties,
            has_budget: offer.has_extension(ext::memory_budget::NAME),
            segments: Mutex::default(),
            pinned: PinnedMemory::default(),
            staging,
            table: Arc::new(Table::new(&memory)?),
            timestamps: Timestamps::new(&device),
            next_queue: AtomicUsize::new(0),
            streams: Streams::new(),
            memory,
            device,
        })
    }

    /// Waits for all work submitted so far.
    fn finish(&self) {
        for timeline in self.streams.alive() {
            let _ = timeline.finish(); // fails only if no work runs any more
        }
    }
}

// SAFETY: Each `alloc` makes a buffer with memory of its own, and a `VulkanPtr` names the buffer, so no two overlap.
// Every submission to a queue ends with a barrier, so each stream is in order, and the value of its semaphore, which
// `is_complete` compares, is reached when all earlier work is done and visible. `dealloc` and dropping this value wait
// for all work, however often the driver refuses to wait. Nothing panics or calls the core back.
unsafe impl Backend for Vulkan {
    const KIND: DeviceKind = DeviceKind::new("vulkan");
    type Ptr = VulkanPtr;
    type Stream = VulkanStream;
    type Event = VulkanEvent;

    fn probe() -> Result<u32, Unavailable> {
        devices::capacity()?;
        Ok(devices::all()?.len() as u32)
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        let bad_capacity = |_| answer::refused("vkAllocateMemory", "ACCELERATOR_VULKAN_CAPACITY is not a size");
        Self::with_capacity(ordinal, devices::capacity().map_err(bad_capacity)?)
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.device.check()?;
        Ok(self.free_memory())
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<VulkanStream> {
        let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let queues = &self.device.queues.streams;
        self.stream_on(&queues[number % queues.len()])
    }

    fn synchronize(&self, stream: &VulkanStream) -> DriverResult<()> {
        stream.timeline.finish()?; // earlier work may still access host memory, even if the stream captures now
        stream.timeline.refuse_captured("vkWaitSemaphores")
    }

    fn is_idle(&self, stream: &VulkanStream) -> DriverResult<bool> {
        stream.timeline.refuse_captured("vkGetSemaphoreCounterValue")?;
        stream.timeline.now().is_reached()
    }

    fn event(&self, flags: EventFlags) -> DriverResult<VulkanEvent> {
        flags.refuse_interprocess("vkCreateSemaphore")?;
        self.device.check()?;
        if flags.enable_timing && self.device.family.timestamp_bits == 0 {
            return Err(answer::error("vkCmdWriteTimestamp", vk::Result::ERROR_FEATURE_NOT_PRESENT));
        }
        Ok(VulkanEvent::new(&self.device, flags.enable_timing.then(|| Arc::clone(&self.timestamps))))
    }

    fn record(&self, event: &VulkanEvent, stream: &VulkanStream) -> DriverResult<()> {
        self.device.check()?;
        event.record(stream)
    }

    fn wait(&self, stream: &VulkanStream, event: &VulkanEvent) -> DriverResult<()> {
        self.device.check()?;
        event.make_wait(stream)
    }

    fn is_complete(&self, event: &VulkanEvent) -> DriverResult<bool> {
        event.point("vkGetSemaphoreCounterValue")?.map_or(Ok(true), |point| point.is_reached())
    }

    fn wait_host(&self, event: &VulkanEvent) -> DriverResult<()> {
        event.point("vkWaitSemaphores")?.map_or(Ok(()), |point| point.wait())?;
        self.device.check()
    }

    fn elapsed_ns(&self, start: &VulkanEvent, end: &VulkanEvent) -> DriverResult<i64> {
        self.device.check()?;
        start.nanoseconds_to(end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<VulkanPtr> {
        self.device.check()?;
        if len.get() > self.properties.largest_allocation {
            return Err(answer::too_large("vkAllocateMemory"));
        }
        let full = answer::error("vkAllocateMemory", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        self.accounting.alloc(len.get(), full, || {
            let made = self.staging.retried(|| self.memory.segment(len.get()))?;
            let (buffer, address) = (made.buffer, self.device.address(made.buffer));
            let mut segments = lock(&self.segments);
            let base = match address {
                Some(address) => {
                    segments.insert(address, len, made);
                    address
                }
                None => segments.add(len, made).map_err(|_| full)?,
            };
            Ok(VulkanPtr::new(buffer, base))
        })
    }

    unsafe fn dealloc(&self, ptr: VulkanPtr, len: NonZeroU64) {
        self.finish();
        let removed = lock(&self.segments).remove(ptr.trace_address());
        if let Some(made) = removed {
            // All work submitted so far is done, and the caller submits no more that uses the memory.
            drop(made);
            self.accounting.give_back(len.get());
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<VulkanPtr>,
        src: Place<VulkanPtr>,
        len: NonZeroU64,
        stream: &VulkanStream,
    ) -> DriverResult<()> {
        // SAFETY: The caller promises the same.
        unsafe { self.submit_copy(dst, src, len, stream) }
    }

    unsafe fn fill(&self, dst: VulkanPtr, value: u8, len: NonZeroU64, stream: &VulkanStream) -> DriverResult<()> {
        // SAFETY: The caller promises the same.
        unsafe { self.submit_fill(dst, value, len, stream) }
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        if len.get() > self.properties.largest_allocation {
            return Err(answer::too_large("vkAllocateMemory"));
        }
        self.staging.retried(|| self.pinned.alloc(&self.memory, len))
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, _len: NonZeroU64) {
        self.pinned.dealloc(ptr);
    }

    fn is_capturing(&self, stream: &VulkanStream) -> DriverResult<bool> {
        self.device.check()?;
        Ok(self.device.captures.is_capturing(stream.timeline.number))
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<VulkanPtr>> {
        self.pager.as_ref().map(|pager| pager as _)
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // After this, no work uses the memory that is left and is now freed. Only this value can submit more.
        self.finish();
    }
}
