#![allow(unsafe_code)] // the backend trait is unsafe to implement, and calls into the driver

use std::ffi::c_void;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_core::backend_kit::{DeviceClock, Streams, byte_count, try_twice};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, Graphs, MemoryInfo,
    PeerCopies, Place, StreamKind, Unavailable, VirtualMemory,
};
use level_zero_sys as sys;
use level_zero_sys::{ze_command_list_handle_t, ze_command_queue_priority_t as Priority};

use crate::answer::call;
use crate::device::Device;
use crate::devices::{self, ALIGNMENT, FILE};
use crate::event::XpuEvent;
use crate::library::{self, Library};
use crate::memory::XpuPtr;
use crate::queue::{Group, Order, Queue, XpuStream};
use crate::signal::Signals;
use crate::usage::Usage;
use crate::virtual_memory::Pager;
use crate::work::Work;

/// An Intel GPU: the driver's streams, events and memory.
#[derive(Debug)]
pub struct Xpu {
    pub(crate) device: Arc<Device>,
    properties: DeviceProperties,
    /// The largest allocation without relaxed limits.
    usual_limit: u64,
    /// Whether device memory can be exported as files, and opened from them.
    makes_files: bool,
    clock: DeviceClock,
    pub(crate) group: Group,
    /// The number of the next stream or graph, which selects its hardware queue.
    pub(crate) next_queue: AtomicU32,
    /// Events without timing; `timed` has those with timing.
    pub(crate) plain: Arc<Signals>,
    timed: Arc<Signals>,
    /// All streams, which may use memory that is being freed.
    queues: Streams<Queue>,
    usage: Usage,
    pager: Option<Pager>,
}

impl Xpu {
    fn new(library: &'static Library, ordinal: u32) -> DriverResult<Self> {
        let api = &library.api;
        let none =
            || DriverError::refused(DriverErrorKind::InvalidArgument, "zeDeviceGet", "no device has this number");
        let found = *library.devices.get(ordinal as usize).ok_or_else(none)?;
        let described = devices::described(api, found.device)?;
        let extensions = found.extensions(api)?;
        let properties = found.properties(api, &described, &extensions)?;
        let (group, queues_of_group) = found.queue_group(api)?;
        // The flag exists since 1.7. This function exists since 1.9, in which the loader's own checks recognise the
        // flag.
        let in_order = found.api_version(api)? >= (1, 7) && api.zeCommandListGetDeviceHandle().is_ok();
        let order = if in_order { Order::Driver } else { Order::Barriers };
        let group = Group { ordinal: group, queues: queues_of_group, order };
        let device = Device::new(api, found)?;
        let plain = Signals::new(&device, false);
        Ok(Self {
            usual_limit: described.maxMemAllocSize,
            makes_files: found.makes_files(api),
            clock: DeviceClock::with_frequency(described.kernelTimestampValidBits, described.timerResolution),
            group,
            next_queue: AtomicU32::new(0),
            timed: Signals::new(&device, true),
            queues: Streams::new(),
            usage: Usage::new(&described, &extensions, properties.total_memory),
            pager: Pager::new(&device, group, &plain),
            plain,
            properties,
            device,
        })
    }

    /// Makes a stream from the list that `make` returns, and registers it as one that may use memory.
    pub(crate) fn stream_of(
        &self,
        (order, owned): (Order, bool),
        make: impl FnOnce() -> DriverResult<ze_command_list_handle_t>,
    ) -> DriverResult<XpuStream> {
        let queue = Queue::new(&self.device, &self.plain, (order, owned), make)?;
        self.queues.add(&queue);
        Ok(XpuStream(queue))
    }

    /// Waits for all streams. Returns whether none of their work runs any more.
    fn wait_for_streams(&self) -> bool {
        self.queues.alive().iter().all(|queue| queue.is_done())
    }

    /// Submits a copy. An error that a device is lost may concern either device.
    ///
    /// # Safety
    /// * The requirements of [`Backend::copy`]; device memory may belong to any device of the context that this one can
    ///   access.
    pub(crate) unsafe fn submit_copy(
        &self,
        dst: Place<XpuPtr>,
        src: Place<XpuPtr>,
        len: NonZeroU64,
        stream: &XpuStream,
    ) -> DriverResult<()> {
        if stream.0.device.captures.is_capturing(stream.0.number) {
            [dst, src].into_iter().try_for_each(|place| self.refuse_pageable(place))?;
        }
        let work = Work::Copy { to: address(dst)?, from: address(src)?, len: byte_count(len) };
        // SAFETY: The caller promises two valid ranges.
        unsafe { stream.0.run(&work) }
    }

    /// Allocates device memory, or opens that of another process, as the description says. The address is to be
    /// [checked](Self::checked).
    pub(crate) fn allocate(
        &self,
        description: &sys::ze_device_mem_alloc_desc_t,
        len: NonZeroU64,
    ) -> DriverResult<*mut c_void> {
        let (device, mut at) = (&self.device, ptr::null_mut());
        let (context, raw, size, alignment) = (device.context(), device.raw(), byte_count(len), ALIGNMENT as usize);
        // SAFETY: The `stype` of each description is set, and the call writes an address.
        unsafe { call!(device, zeMemAllocDevice(context, description, size, alignment, raw, &mut at)) }?;
        Ok(at)
    }

    /// Checks an allocation that the driver reports as successful: it must have an address, and one with the requested
    /// alignment.
    pub(crate) fn checked(&self, call: &'static str, at: *mut c_void) -> DriverResult<NonNull<u8>> {
        let Some(memory) = NonNull::new(at.cast::<u8>()) else {
            let why = "the driver returned neither memory nor an error";
            return Err(DriverError::refused(DriverErrorKind::OutOfMemory, call, why));
        };
        if !(at.addr() as u64).is_multiple_of(ALIGNMENT) {
            // SAFETY: The memory was just allocated, and nothing uses it yet.
            unsafe { self.free(at) };
            let why = "the driver returned an address that is not a multiple of 512";
            return Err(DriverError::refused(DriverErrorKind::Other, call, why));
        }
        Ok(memory)
    }

    /// Frees memory. Returns whether that succeeded.
    ///
    /// # Safety
    /// * The memory belongs to the context, nothing uses it, and it is freed once: a failing call frees nothing.
    pub(crate) unsafe fn free(&self, at: *mut c_void) -> bool {
        // SAFETY: The caller makes the same promise.
        try_twice(|| unsafe { call!(self.device, zeMemFree(self.device.context(), at)) })
    }
}

// SAFETY: The driver returns memory that overlaps no other and stays allocated, and its alignment is checked. Streams
// are in order, by the driver or by barriers, and barriers make them wait for events. An event is complete when the
// barrier behind the work before it is done, or when the device does no more work. Memory is freed once the streams
// have done all work submitted before. Nothing here panics or calls the core.
unsafe impl Backend for Xpu {
    const KIND: DeviceKind = DeviceKind::new("xpu");
    type Ptr = XpuPtr;
    type Stream = XpuStream;
    type Event = XpuEvent;

    fn probe() -> Result<u32, Unavailable> {
        library::library().map(|library| library.devices.len() as u32)
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        Self::new(library::opened()?, ordinal)
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        self.usage.info(&self.device)
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<XpuStream> {
        let priority = match kind.priority() {
            ..0 => Priority::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
            0 => Priority::ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
            1.. => Priority::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
        };
        let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
        self.stream_of((self.group.order, true), || self.group.list(&self.device, number, priority))
    }

    fn synchronize(&self, stream: &XpuStream) -> DriverResult<()> {
        stream.0.synchronize()?; // earlier work may still access host memory, even if the stream captures now
        self.device.captures.refuse_captured(stream.0.number, "zeEventHostSynchronize")
    }

    fn is_idle(&self, stream: &XpuStream) -> DriverResult<bool> {
        self.device.captures.refuse_captured(stream.0.number, "zeEventQueryStatus")?;
        stream.0.is_idle()
    }

    fn event(&self, flags: EventFlags) -> DriverResult<XpuEvent> {
        flags.refuse_interprocess("event")?;
        let signals = if flags.enable_timing { &self.timed } else { &self.plain };
        self.device.health.check().map(|()| XpuEvent::new(&self.device, signals))
    }

    fn event_id(&self, event: &XpuEvent) -> u64 {
        event.id()
    }

    fn record(&self, event: &XpuEvent, stream: &XpuStream) -> DriverResult<()> {
        event.record(&stream.0)
    }

    fn wait(&self, stream: &XpuStream, event: &XpuEvent) -> DriverResult<()> {
        event.wait_on(&stream.0)
    }

    fn is_complete(&self, event: &XpuEvent) -> DriverResult<bool> {
        event.is_complete()
    }

    fn wait_host(&self, event: &XpuEvent) -> DriverResult<()> {
        event.wait()
    }

    fn elapsed_ns(&self, start: &XpuEvent, end: &XpuEvent) -> DriverResult<i64> {
        start.elapsed_ns(end, self.clock)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<XpuPtr> {
        const CALL: &str = "zeMemAllocDevice";
        let beyond = len.get() > self.usual_limit;
        if len.get() > self.properties.largest_allocation {
            let why = "the size exceeds maxMemAllocSize, and the driver lacks \
                       ZE_experimental_relaxed_allocation_limits: update the driver, or allocate several smaller parts";
            return Err(DriverError::refused(DriverErrorKind::AllocationTooLarge, CALL, why));
        }
        let flags = sys::ze_relaxed_allocation_limits_exp_flag_t::ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE.0;
        let relaxed = sys::ze_relaxed_allocation_limits_exp_desc_t { flags, ..Default::default() };
        let chain: *const c_void = if beyond { (&raw const relaxed).cast() } else { ptr::null() };
        let file = sys::ze_external_memory_export_desc_t { flags: FILE, pNext: chain, ..Default::default() };
        let chain = if self.makes_files { (&raw const file).cast() } else { chain };
        let memory = self.allocate(&sys::ze_device_mem_alloc_desc_t { pNext: chain, ..Default::default() }, len);
        let memory = memory.map_err(|mut error| {
            // If the limit is lifted, the driver refuses only requests that exceed the device's memory.
            if beyond && error.kind == DriverErrorKind::AllocationTooLarge {
                error.kind = DriverErrorKind::OutOfMemory;
            }
            error
        })?;
        let memory = self.checked(CALL, memory)?;
        self.device.handed_out.fetch_add(len.get(), Ordering::Relaxed);
        Ok(XpuPtr::from_native(memory.as_ptr().cast()))
    }

    unsafe fn dealloc(&self, ptr: XpuPtr, len: NonZeroU64) {
        // `zeMemFree` does not wait. If a stream cannot be waited for, the memory is leaked.
        // SAFETY: The caller frees an allocation of `alloc`, once, and no stream uses it.
        if self.wait_for_streams() && unsafe { self.free(ptr.native()) } {
            self.device.handed_out.fetch_sub(len.get(), Ordering::Relaxed);
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<XpuPtr>,
        src: Place<XpuPtr>,
        len: NonZeroU64,
        stream: &XpuStream,
    ) -> DriverResult<()> {
        // SAFETY: The caller makes the same promise.
        self.device.health.run(|| unsafe { self.submit_copy(dst, src, len, stream) })
    }

    unsafe fn fill(&self, dst: XpuPtr, value: u8, len: NonZeroU64, stream: &XpuStream) -> DriverResult<()> {
        let work = Work::Fill { at: dst, value, len: byte_count(len) };
        // SAFETY: The caller promises a range that is valid for writes.
        self.device.health.run(|| unsafe { stream.0.run(&work) })
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let (device, mut at) = (&self.device, ptr::null_mut());
        let description = sys::ze_host_mem_alloc_desc_t::default();
        let (context, size, alignment) = (device.context(), byte_count(len), ALIGNMENT as usize);
        // SAFETY: The `stype` of the description is set, and the call writes an address.
        unsafe { call!(device, zeMemAllocHost(context, &description, size, alignment, &mut at)) }?;
        self.checked("zeMemAllocHost", at)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, _len: NonZeroU64) {
        // SAFETY: The caller frees an allocation of `alloc_host`, once, and nothing uses it.
        unsafe { self.free(ptr.as_ptr().cast()) };
    }

    fn is_capturing(&self, stream: &XpuStream) -> DriverResult<bool> {
        self.device.health.check()?;
        Ok(self.device.captures.is_capturing(stream.0.number))
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        Some(self)
    }

    fn peer_copies(&self) -> Option<&dyn PeerCopies<Self>> {
        Some(self)
    }

    #[cfg(target_os = "linux")]
    fn interprocess(&self) -> Option<&dyn accelerator_core::Interprocess<XpuPtr>> {
        self.makes_files.then_some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<XpuPtr>> {
        self.pager.as_ref().map(|pager| pager as _)
    }
}

fn address(place: Place<XpuPtr>) -> DriverResult<XpuPtr> {
    match place {
        Place::Device(at) => Ok(at),
        Place::Host(at) => Ok(XpuPtr::from_native(at.as_ptr().cast())),
        _ => Err(DriverError::unknown_place("zeCommandListAppendMemoryCopy")),
    }
}
