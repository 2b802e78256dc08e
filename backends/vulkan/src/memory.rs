//! Memory, and buffers that have memory of their own.
#![allow(unsafe_code)] // calls into the driver

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::HandlePtr;
use ash::vk;
use ash::vk::MemoryPropertyFlags as Has;

use crate::answer;
use crate::device::Device;
use crate::offer::Offer;

/// An address in the memory of a Vulkan device: a buffer and an offset. Its trace address is its device address, if
/// buffers have addresses. A buffer that another library made needs the usages `TRANSFER_SRC` or `TRANSFER_DST`.
pub type VulkanPtr = HandlePtr<vk::Buffer>;

/// Allocates buffers of a device, and counts their memory objects, of which a driver allows only so many.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) device: Arc<Device>,
    pub(crate) segments: Kind,
    pinned: Kind,
    /// The alignment of the memory of buffers.
    pub(crate) alignment: u64,
    objects: AtomicU32,
}

/// A type of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    number: u32,
    pub(crate) heap: usize,
    pub(crate) heap_size: u64,
}

/// A buffer with memory. Both are freed when it is dropped, so it must live until all work that uses it is done.
#[derive(Debug)]
pub(crate) struct Allocation {
    memory: Arc<Memory>,
    pub(crate) buffer: vk::Buffer,
    raw: vk::DeviceMemory,
}

impl Memory {
    pub(crate) fn new(device: &Arc<Device>, offer: &Offer) -> DriverResult<Self> {
        let needs = requirements(device, vk::BufferCreateFlags::empty())?;
        let (segments, pinned) = choose(&offer.memory, needs.memory_type_bits).ok_or_else(|| {
            answer::error("vkGetPhysicalDeviceMemoryProperties", vk::Result::ERROR_FEATURE_NOT_PRESENT)
        })?;
        let objects = AtomicU32::new(0);
        let alignment = needs.alignment;
        Ok(Self { device: Arc::clone(device), segments, pinned, alignment, objects })
    }

    /// Allocates a buffer in the memory of the device.
    pub(crate) fn segment(self: &Arc<Self>, len: u64) -> DriverResult<Allocation> {
        self.allocate(len, self.segments)
    }

    /// Allocates a buffer in the memory of the host, and returns where the host sees it. Its writes need no flushing.
    pub(crate) fn pinned(self: &Arc<Self>, len: u64) -> DriverResult<(Allocation, NonNull<u8>)> {
        let made = self.allocate(len, self.pinned)?;
        let (all, none) = (vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
        // SAFETY: The memory is visible to the host, and not mapped yet.
        let start = unsafe { self.device.raw.map_memory(made.raw, 0, all, none) };
        let start = NonNull::new(self.device.answer("vkMapMemory", start)?.cast());
        let failed = || answer::error("vkMapMemory", vk::Result::ERROR_MEMORY_MAP_FAILED);
        Ok((made, start.ok_or_else(failed)?))
    }

    fn allocate(self: &Arc<Self>, len: u64, kind: Kind) -> DriverResult<Allocation> {
        self.device.check()?;
        let buffer = buffer(&self.device, len, vk::BufferCreateFlags::empty())?;
        // From here on, dropping it gives back what it has.
        let mut made = Allocation { memory: Arc::clone(self), buffer, raw: vk::DeviceMemory::null() };
        // SAFETY: The buffer is alive.
        let needs = unsafe { self.device.raw.get_buffer_memory_requirements(buffer) };
        made.raw = self.object(needs.size, kind)?;
        // SAFETY: Both have just been made, and the memory is large enough.
        let bound = unsafe { self.device.raw.bind_buffer_memory(made.buffer, made.raw, 0) };
        self.device.answer("vkBindBufferMemory", bound).map(|()| made)
    }

    /// Allocates memory without an address.
    pub(crate) fn object(&self, len: u64, kind: Kind) -> DriverResult<vk::DeviceMemory> {
        if len > kind.heap_size {
            // Vulkan does not allow to ask for more.
            return Err(answer::error("vkAllocateMemory", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        }
        let limit = self.device.limits.max_memory_allocation_count;
        let more = |count: u32| count.checked_add(1).filter(|count| *count <= limit);
        if self.objects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            // Beyond this number of memory objects, the behaviour of a driver is undefined.
            return Err(answer::error("vkAllocateMemory", vk::Result::ERROR_TOO_MANY_OBJECTS));
        }
        let mut addressed = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut description = vk::MemoryAllocateInfo::default().allocation_size(len).memory_type_index(kind.number);
        if self.device.has_addresses() {
            description = description.push_next(&mut addressed);
        }
        // SAFETY: The device has this type of memory, and the limit of objects is not exceeded.
        let memory = unsafe { self.device.raw.allocate_memory(&description, None) };
        self.device.answer("vkAllocateMemory", memory).inspect_err(|_| self.uncount_object())
    }

    /// Frees memory, which no work uses.
    pub(crate) fn free(&self, object: vk::DeviceMemory) {
        // SAFETY: The memory comes from this device, and its only owner gives it up. Freeing it unmaps it.
        self.device.destroy(|device| unsafe { device.free_memory(object, None) });
        self.uncount_object();
    }

    fn uncount_object(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Self { memory, buffer, raw } = self;
        // SAFETY: No work uses the buffer, since its owners wait for that.
        memory.device.destroy(|device| unsafe { device.destroy_buffer(*buffer, None) });
        if *raw != vk::DeviceMemory::null() {
            memory.free(*raw);
        }
    }
}

/// Returns what memory a buffer needs. All buffers with the same usage and flags have the same types of memory and the
/// same alignment.
pub(crate) fn requirements(device: &Device, flags: vk::BufferCreateFlags) -> DriverResult<vk::MemoryRequirements> {
    let sample = buffer(device, 1 << 20, flags)?;
    // SAFETY: The buffer is alive.
    let needs = unsafe { device.raw.get_buffer_memory_requirements(sample) };
    // SAFETY: The buffer is not used again.
    unsafe { device.raw.destroy_buffer(sample, None) };
    Ok(needs)
}

pub(crate) fn buffer(device: &Device, len: u64, flags: vk::BufferCreateFlags) -> DriverResult<vk::Buffer> {
    let mut usage = vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST
        | vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::UNIFORM_BUFFER
        | vk::BufferUsageFlags::INDIRECT_BUFFER;
    if device.has_addresses() {
        usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    }
    let description = vk::BufferCreateInfo::default().flags(flags).size(len).usage(usage);
    // SAFETY: The length is not 0, and the device supports these usages and flags.
    device.answer("vkCreateBuffer", unsafe { device.raw.create_buffer(&description, None) })
}

/// Chooses a type of memory for segments and one for pinned memory among those in `allowed`, a bit for each.
pub(crate) fn choose(memory: &vk::PhysicalDeviceMemoryProperties, allowed: u32) -> Option<(Kind, Kind)> {
    let plain = Has::DEVICE_LOCAL | Has::HOST_VISIBLE | Has::HOST_COHERENT | Has::HOST_CACHED;
    let types = (0..).zip(memory.memory_types_as_slice());
    let types = types.filter(|(number, kind)| allowed & (1_u32 << number) != 0 && plain.contains(kind.property_flags));
    let size = |kind: &vk::MemoryType| memory.memory_heaps[kind.heap_index as usize].size;
    // Of types that are equally good, drivers list the faster first.
    let segment = types.clone().max_by_key(|(number, kind)| {
        let has = |flag| kind.property_flags.contains(flag);
        (has(Has::DEVICE_LOCAL), size(kind), !has(Has::HOST_VISIBLE), u32::MAX - number)
    });
    // Every device has a type that is coherent, for which writes need no flushing.
    let coherent = Has::HOST_VISIBLE | Has::HOST_COHERENT;
    let pinned = types.filter(|(_, kind)| kind.property_flags.contains(coherent)).max_by_key(|(number, kind)| {
        let has = |flag| kind.property_flags.contains(flag);
        (has(Has::HOST_CACHED), !has(Has::DEVICE_LOCAL), size(kind), u32::MAX - number)
    });
    let kind =
        |(number, kind): (u32, &vk::MemoryType)| Kind { number, heap: kind.heap_index as usize, heap_size: size(kind) };
    Some((kind(segment?), kind(pinned?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Has = Has::DEVICE_LOCAL;
    const SLOW: Has = Has::from_raw(Has::HOST_VISIBLE.as_raw() | Has::HOST_COHERENT.as_raw());
    const FAST: Has = Has::from_raw(SLOW.as_raw() | Has::HOST_CACHED.as_raw());

    /// Returns the numbers of the types for segments and for pinned memory, among types with these flags and heaps.
    fn chosen(heaps: &[u64], types: &[(Has, u32)], allowed: u32) -> Option<(u32, u32)> {
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_heap_count: heaps.len() as u32,
            memory_type_count: types.len() as u32,
            ..Default::default()
        };
        for (place, size) in heaps.iter().enumerate() {
            memory.memory_heaps[place].size = *size;
        }
        for (place, (property_flags, heap_index)) in types.iter().enumerate() {
            memory.memory_types[place] = vk::MemoryType { property_flags: *property_flags, heap_index: *heap_index };
        }
        choose(&memory, allowed).map(|(segments, pinned)| (segments.number, pinned.number))
    }

    #[test]
    fn segments_are_on_the_device_and_pinned_memory_is_cached() {
        // As NVIDIA's driver lists them: a window to the device's memory comes last.
        let types = [(Has::empty(), 1), (LOCAL, 0), (SLOW, 1), (FAST, 1), (LOCAL | SLOW, 2)];
        let heaps = [80 << 30, 64 << 30, 256 << 20];
        assert_eq!(chosen(&heaps, &types, u32::MAX), Some((1, 3)));
        assert_eq!(chosen(&heaps, &types, 0b10111), Some((1, 2)), "without the cached type");
        // As Mesa's driver for CPUs and MoltenVK list them.
        assert_eq!(chosen(&[2 << 30], &[(LOCAL | FAST, 0)], u32::MAX), Some((0, 0)));
        assert_eq!(chosen(&[8 << 30], &[(LOCAL, 0), (LOCAL | FAST, 0)], u32::MAX), Some((0, 1)));
        // Types for special uses are left alone.
        let special = [(LOCAL | Has::PROTECTED, 0), (LOCAL | Has::LAZILY_ALLOCATED, 0), (LOCAL | SLOW, 0)];
        assert_eq!(chosen(&[8 << 30], &special, u32::MAX), Some((2, 2)));
        assert_eq!(chosen(&[8 << 30], &special, 0b011), None);
    }
}
