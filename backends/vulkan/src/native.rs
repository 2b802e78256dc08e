//! Devices, queues and memory shared with other libraries, in both directions.
#![allow(unsafe_code)] // handles of other libraries

use std::ptr::NonNull;
use std::sync::Arc;

use accelerator_core::backend_kit::lock;
use accelerator_core::{DevicePtr, DriverResult};
use ash::vk;

use crate::answer;
use crate::device::{Device, DeviceQueues, Queue};
use crate::memory::VulkanPtr;
use crate::offer::Offer;
use crate::queues::Queues;
use crate::stream::VulkanStream;
use crate::timeline::Timeline;
use crate::virtual_memory::Pager;
use crate::vulkan::Vulkan;

/// A logical device, to share with another library.
#[derive(Clone)]
pub struct NativeDevice {
    /// The instance.
    pub instance: ash::Instance,
    /// The version of Vulkan that the instance was made for, such as [`vk::API_VERSION_1_2`].
    pub version: u32,
    /// The physical device.
    pub physical: vk::PhysicalDevice,
    /// The logical device.
    pub device: ash::Device,
    /// A queue family with `VK_QUEUE_COMPUTE_BIT`.
    pub family: u32,
    /// Queues of this family. Streams take them in turn.
    pub queues: Vec<vk::Queue>,
    /// Whether the feature `bufferDeviceAddress` is enabled.
    pub has_buffer_addresses: bool,
    /// Whether the features `sparseBinding` and `sparseResidencyBuffer` are enabled, and `sparseResidencyAliased` if
    /// the device has it. Then the first queue binds memory if its family has `VK_QUEUE_SPARSE_BINDING_BIT`.
    pub has_sparse_buffers: bool,
}

impl Vulkan {
    /// Opens a logical device that another library made, to share its objects. The device hands out at most
    /// `capacity` bytes; with `None`, as many as it has.
    ///
    /// # Errors
    /// [`Unsupported`](accelerator_core::DriverErrorKind::Unsupported) for a device without timeline semaphores;
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) without a queue, and for a family that
    /// has no kernels; errors of the driver.
    ///
    /// # Safety
    /// * The handles are valid, belong together, and stay valid as long as this value, its streams and its events live.
    /// * The feature `timelineSemaphore` is enabled, and so are those that `has_buffer_addresses` and
    ///   `has_sparse_buffers` promise.
    /// * Nothing else uses the queues, except through [`VulkanStream::with_queue`].
    pub unsafe fn from_native(native: NativeDevice, capacity: Option<u64>) -> DriverResult<Self> {
        let mut offer = Offer::of(&native.instance, native.physical, native.version)?;
        if let Some(flaw) = offer.flaw() {
            return Err(flaw);
        }
        offer.has_addresses &= native.has_buffer_addresses;
        offer.has_sparse_buffers &= native.has_sparse_buffers;
        let family = offer.families.get(native.family as usize);
        let family = family.filter(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let Some(family) = family.filter(|_| !native.queues.is_empty()) else {
            let reason = "at least one queue of a family that runs kernels is needed";
            return Err(answer::refused("vkGetDeviceQueue", reason));
        };
        let can_bind = family.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
        let family = Queues {
            family: native.family,
            count: native.queues.len() as u32,
            timestamp_bits: family.timestamp_valid_bits,
        };
        let streams: Vec<_> = native.queues.into_iter().map(Queue::new).collect();
        let binds = offer.has_sparse_buffers && can_bind;
        let binding = streams.first().filter(|_| binds).map(Arc::clone);
        let (raw, queues) = (native.device, DeviceQueues { streams, binding });
        let device = Device::new(&native.instance, raw, native.physical, &offer, family, queues, false);
        Self::new(device, &offer, capacity)
    }

    /// Returns the handles of the device. They are valid as long as this value lives.
    pub fn native(&self) -> NativeDevice {
        NativeDevice {
            instance: self.device.instance.clone(),
            version: self.version,
            physical: self.device.physical,
            device: self.device.raw.clone(),
            family: self.device.family.family,
            queues: self.device.queues.streams.iter().map(|queue| queue.raw()).collect(),
            has_buffer_addresses: self.device.has_addresses(),
            has_sparse_buffers: self.device.queues.binding.is_some(),
        }
    }

    /// Makes a stream on a queue of another library, for
    /// [`external_stream`](accelerator_core::Accelerator::external_stream).
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// * The queue is one of this logical device, of the family of [`native`](Self::native), and not one of its queues.
    /// * It stays valid as long as the stream lives, and nothing else uses it, except through
    ///   [`VulkanStream::with_queue`].
    pub unsafe fn adopt(&self, queue: vk::Queue) -> DriverResult<VulkanStream> {
        self.stream_on(&Queue::new(queue))
    }

    /// Returns the device address of a place, for shaders that take pointers. `None` if the device has no addresses
    /// (`bufferDeviceAddress`), and for a place that is not in live memory of this device or a reservation.
    pub fn device_address(&self, place: VulkanPtr) -> Option<vk::DeviceAddress> {
        let (place, address) = (place.native(), place.trace_address());
        // The address alone does not tell: it may be made up.
        let in_segment = lock(&self.segments).find(address).is_some_and(|(made, at)| (made.buffer, at) == place);
        let is_reserved = |pager: &Pager| {
            lock(&pager.reservations).find(address).is_some_and(|(made, at)| (made.buffer, at) == place)
        };
        let is_there = in_segment || self.pager.as_ref().is_some_and(is_reserved);
        (is_there && self.device.has_addresses()).then_some(address)
    }

    /// Returns the buffer and the offset of pinned memory; `None` unless all of it was allocated by this device.
    pub fn pinned_native(&self, start: NonNull<u8>, len: u64) -> Option<(vk::Buffer, u64)> {
        self.pinned.find(start, len)
    }

    pub(crate) fn stream_on(&self, queue: &Arc<Queue>) -> DriverResult<VulkanStream> {
        let timeline = Timeline::new(&self.device, queue)?;
        self.streams.add(&timeline);
        Ok(VulkanStream { timeline })
    }
}
