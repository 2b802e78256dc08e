//! Address space and memory, separately: sparse buffers, and memory that is bound to parts of them.
#![allow(unsafe_code)] // calls into the driver

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{Accounting, SegmentTable, get_mut, lock};
use accelerator_core::{DevicePtr, DriverResult, MIB, Pages, VirtualMemory};
use ash::vk;
use ash::vk::Handle;

use crate::answer;
use crate::device::{Device, Queue};
use crate::memory::{Kind, Memory, VulkanPtr, buffer, choose, requirements};
use crate::offer::Offer;
use crate::staging::Staging;

/// Pages of fewer bytes would need more memory objects than drivers allow, of which 4,096 are usual.
const LEAST_PAGE: u64 = 2 * MIB;

/// Binds the memory of one device.
#[derive(Debug)]
pub(crate) struct Pager {
    memory: Arc<Memory>,
    /// Memory for copies, which is given up if there is too little for pages.
    staging: Arc<Staging>,
    accounting: Arc<Accounting>,
    queue: Arc<Queue>,
    kind: Kind,
    maps_twice: bool,
    granularity: NonZeroU64,
    largest_allocation: u64,
    largest_buffer: u64,
    /// Counts the bytes of all sparse buffers: Vulkan does not allow more than the address space holds.
    addresses: Accounting,
    pub(crate) reservations: Mutex<SegmentTable<Reservation>>,
    pages: Mutex<HashSet<vk::DeviceMemory>>,
}

/// A sparse buffer, destroyed when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    pub(crate) buffer: vk::Buffer,
}

impl Pager {
    /// Returns `None` if the device lacks something that this needs: sparse buffers, a queue that binds memory, device
    /// addresses, or an address space of at least twice the memory.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        offer: &Offer,
        accounting: &Arc<Accounting>,
        staging: &Arc<Staging>,
    ) -> DriverResult<Option<Self>> {
        let device = &memory.device;
        let space = device.limits.sparse_address_space_size;
        let Some(queue) = &device.queues.binding else { return Ok(None) };
        if !device.has_addresses() || space / 2 < accounting.memory_info().total {
            return Ok(None);
        }
        let needs = requirements(device, flags(offer.has_aliases))?;
        // Free memory is that of the segments' heap.
        let kind = choose(&offer.memory, needs.memory_type_bits).map(|(segments, _)| segments);
        let kind = kind.filter(|kind| kind.heap == memory.segments.heap);
        let granularity = NonZeroU64::new(LEAST_PAGE.next_multiple_of(needs.alignment));
        let (Some(kind), Some(granularity)) = (kind, granularity) else { return Ok(None) };
        Ok(Some(Self {
            memory: Arc::clone(memory),
            staging: Arc::clone(staging),
            accounting: Arc::clone(accounting),
            queue: Arc::clone(queue),
            kind,
            maps_twice: offer.has_aliases,
            granularity,
            largest_allocation: offer.largest_allocation,
            largest_buffer: offer.largest_buffer,
            addresses: Accounting::new(space),
            reservations: Mutex::default(),
            pages: Mutex::default(),
        }))
    }

    fn device(&self) -> &Device {
        &self.memory.device
    }

    fn sparse_buffer(&self, len: u64) -> DriverResult<(Reservation, vk::DeviceAddress)> {
        let buffer = buffer(self.device(), len, flags(self.maps_twice))?;
        let made = Reservation { memory: Arc::clone(&self.memory), buffer };
        let no_address = || answer::error("vkGetBufferDeviceAddress", vk::Result::ERROR_FEATURE_NOT_PRESENT);
        let address = self.device().address(buffer).ok_or_else(no_address)?;
        Ok((made, address))
    }

    /// Binds memory to a part of a sparse buffer, or removes what is bound if `memory` is null, and waits until that is
    /// done. So all later work of the device comes after it.
    ///
    /// # Safety
    /// * The part is in a sparse buffer of this device, no work uses it, and the memory is as long.
    unsafe fn bind(&self, at: VulkanPtr, len: NonZeroU64, memory: vk::DeviceMemory) -> DriverResult<()> {
        let (device, (buffer, offset)) = (self.device(), at.native());
        let part = [vk::SparseMemoryBind::default().resource_offset(offset).size(len.get()).memory(memory)];
        let parts = [vk::SparseBufferMemoryBindInfo::default().buffer(buffer).binds(&part)];
        let mut done = device.semaphore()?;
        let value = done.value + 1;
        let (signalled, values) = ([done.raw], [value]);
        let mut counting = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let batch =
            [vk::BindSparseInfo::default().buffer_binds(&parts).signal_semaphores(&signalled).push_next(&mut counting)];
        // SAFETY: The queue binds memory, and only this thread uses it. The caller promises a valid part.
        let submit = |queue| unsafe { device.raw.queue_bind_sparse(queue, &batch, vk::Fence::null()) };
        device.answer("vkQueueBindSparse", self.queue.with(submit))?;
        done.value = value;
        // However the driver refuses to wait, the memory is bound after this, or the device is lost.
        let _ = device.wait_semaphore(done.raw, value);
        device.check()
    }
}

// SAFETY: The driver gives each sparse buffer its own addresses, and each memory object its own bytes. What is bound
// stays bound until it is removed. Every submission ends with a barrier, so work at one address sees what earlier work
// of its stream wrote at another.
unsafe impl VirtualMemory<VulkanPtr> for Pager {
    fn granularity(&self) -> NonZeroU64 {
        self.granularity
    }

    fn maps_twice(&self) -> bool {
        self.maps_twice
    }

    fn reserve(&self, len: NonZeroU64) -> DriverResult<VulkanPtr> {
        self.device().check()?;
        let full = answer::error("vkCreateBuffer", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        if len.get() > self.largest_buffer {
            return Err(full);
        }
        let (made, address) = self.addresses.alloc(len.get(), full, || self.sparse_buffer(len.get()))?;
        let buffer = made.buffer;
        lock(&self.reservations).insert(address, len, made);
        Ok(VulkanPtr::new(buffer, address))
    }

    unsafe fn release(&self, at: VulkanPtr, len: NonZeroU64) {
        let removed = lock(&self.reservations).remove(at.trace_address());
        if let Some(made) = removed {
            drop(made); // without the lock, since this calls the driver
            self.addresses.give_back(len.get());
        }
    }

    fn create(&self, len: NonZeroU64) -> DriverResult<Pages> {
        self.device().check()?;
        if len.get() > self.largest_allocation {
            return Err(answer::too_large("vkAllocateMemory"));
        }
        let full = answer::error("vkAllocateMemory", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        let allocate = || self.staging.retried(|| self.memory.object(len.get(), self.kind));
        let made = self.accounting.alloc(len.get(), full, allocate)?;
        lock(&self.pages).insert(made);
        Ok(Pages::new(made.as_raw(), len))
    }

    unsafe fn destroy(&self, pages: Pages) {
        let object = vk::DeviceMemory::from_raw(pages.handle);
        lock(&self.pages).remove(&object);
        self.memory.free(object);
        self.accounting.give_back(pages.len.get());
    }

    unsafe fn map(&self, at: VulkanPtr, pages: &Pages) -> DriverResult<()> {
        self.device().check()?;
        // SAFETY: The caller promises a part of a reservation in which nothing is mapped.
        unsafe { self.bind(at, pages.len, vk::DeviceMemory::from_raw(pages.handle)) }
    }

    unsafe fn unmap(&self, at: VulkanPtr, len: NonZeroU64) -> DriverResult<()> {
        self.device().check()?;
        // SAFETY: The caller promises a whole mapping, and that all work that uses it is over.
        unsafe { self.bind(at, len, vk::DeviceMemory::null()) }
    }
}

fn flags(maps_twice: bool) -> vk::BufferCreateFlags {
    let sparse = vk::BufferCreateFlags::SPARSE_BINDING | vk::BufferCreateFlags::SPARSE_RESIDENCY;
    if maps_twice { sparse | vk::BufferCreateFlags::SPARSE_ALIASED } else { sparse }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // Pages are left if they could not be unmapped, since the device is lost. Then no work runs any more.
        get_mut(&mut self.pages).drain().for_each(|object| self.memory.free(object));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: No work uses the buffer, since its owners wait for that.
        self.memory.device.destroy(|device| unsafe { device.destroy_buffer(self.buffer, None) });
    }
}
