//! Devices, queues, memory and work of other libraries, which call Vulkan themselves.
#![allow(unsafe_code)]

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, DriverResult, EventFlags, KIB, Place, StreamKind};
use accelerator_vulkan::ash::vk;
use accelerator_vulkan::ash::vk::Handle;
use accelerator_vulkan::{NativeDevice, Vulkan, VulkanPtr, VulkanStream};
use libtest_mimic::{Failed, Trial};

use crate::rig::{Outcome, around, bytes, check_all_gone, device, read_raw, trial};
use crate::spy::Spied;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("native::device_of_another_library", foreign_device),
        trial("native::command_buffers_of_the_program", command_buffers),
        trial("native::work_past_us", work_past_us),
        trial("native::a_queue_of_another_library", foreign_queue),
        trial("native::our_buffers", our_buffers),
        trial("native::places_that_are_not_there_have_no_address", places_that_are_not_there),
        trial("native::events_of_another_device_are_refused", events_elsewhere),
        trial("native::wrong_handles_are_refused", refused),
    ]
}

fn foreign_device() -> Outcome {
    let spied = Spied::new()?;
    let backend = spied.open(1 << 30)?;
    let stream = backend.stream(StreamKind::Default)?;
    let memory = backend.alloc(bytes(64 * KIB))?;
    // SAFETY: The memory has that many bytes.
    unsafe { backend.fill(memory, 9, bytes(64 * KIB), &stream) }?;
    assert!(read_raw(&backend, memory, 64 * KIB, &stream)? == [9; 64 << 10]);
    Ok(())
}

/// A command buffer that fills `len` bytes of a buffer with zeros, and its pool.
struct Zeros<'a> {
    native: &'a NativeDevice,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
}

impl<'a> Zeros<'a> {
    fn new(native: &'a NativeDevice, (buffer, offset): (vk::Buffer, u64), len: u64) -> Result<Self, Failed> {
        let description = vk::CommandPoolCreateInfo::default().queue_family_index(native.family);
        // SAFETY: The device has queues of this family.
        let pool = unsafe { native.device.create_command_pool(&description, None) }?;
        let description = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: The pool has just been made.
        let commands = unsafe { native.device.allocate_command_buffers(&description) }?[0];
        let own = Self { native, pool, commands };
        // SAFETY: The command buffer is not in use.
        unsafe { native.device.begin_command_buffer(commands, &Default::default()) }?;
        // SAFETY: The caller passes a range of a buffer, with multiples of 4.
        unsafe { native.device.cmd_fill_buffer(commands, buffer, offset, len, 0) };
        // SAFETY: It is being recorded.
        unsafe { native.device.end_command_buffer(commands) }?;
        Ok(own)
    }
}

impl Drop for Zeros<'_> {
    fn drop(&mut self) {
        // SAFETY: The trials synchronize before.
        unsafe { self.native.device.destroy_command_pool(self.pool, None) };
    }
}

/// Checks that the stream runs `work`, which sets the second half to 0, between its own earlier and later work.
fn check_in_order(work: impl FnOnce(&Vulkan, &VulkanStream, vk::CommandBuffer) -> Outcome) -> Outcome {
    const LEN: u64 = 16 << 20;
    let device = device()?;
    let backend = device.backend();
    let native = backend.native();
    let stream = backend.stream(StreamKind::Default)?;
    let event = backend.event(EventFlags::default())?;
    let places = [backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?];
    let (buffer, offset) = places[0].native();
    let zeros = Zeros::new(&native, (buffer, offset + LEN / 2), LEN / 2)?;
    // SAFETY: The memory has that many bytes.
    unsafe { backend.fill(places[0], 7, bytes(LEN), &stream) }?;
    work(backend, &stream, zeros.commands)?;
    // SAFETY: Both have that many bytes.
    unsafe { backend.copy(Place::Device(places[1]), Place::Device(places[0]), bytes(LEN), &stream) }?;
    backend.record(&event, &stream)?;
    backend.wait_host(&event)?;
    let found = read_raw(backend, places[1], LEN, &stream)?;
    let (first, second) = found.split_at(LEN as usize / 2);
    assert!(first.iter().all(|byte| *byte == 7) && second.iter().all(|byte| *byte == 0));
    for place in places {
        // SAFETY: It was allocated with this length.
        unsafe { backend.dealloc(place, bytes(LEN)) };
    }
    drop(stream);
    check_all_gone(device)
}

fn command_buffers() -> Outcome {
    check_in_order(|_, stream, commands| {
        let before = stream.native().value;
        // SAFETY: The command buffer is recorded, and lives until the stream is synchronized.
        unsafe { stream.submit(&[commands], ()) }?;
        assert_eq!(stream.native().value, before + 1);
        Ok(())
    })
}

fn work_past_us() -> Outcome {
    check_in_order(|backend, stream, commands| {
        let native = backend.native();
        let commands = [commands];
        let batch = vk::SubmitInfo::default().command_buffers(&commands);
        // SAFETY: The command buffer is recorded, and lives until the stream is synchronized.
        let submit = |queue| unsafe { native.device.queue_submit(queue, &[batch], vk::Fence::null()) };
        // SAFETY: What is submitted is valid.
        unsafe { stream.with_queue(submit) }??;
        Ok(())
    })
}

fn foreign_queue() -> Outcome {
    let spied = Spied::new()?;
    let backend = spied.open(1 << 30)?;
    let queue = backend.native().queues[0];
    // SAFETY: The queue is one of the device. It is one that the backend has, but no stream of the backend is used.
    let stream = unsafe { backend.adopt(queue) }?;
    let memory = backend.alloc(bytes(100))?;
    // SAFETY: The memory has that many bytes.
    unsafe { backend.fill(memory, 5, bytes(100), &stream) }?;
    assert_eq!(read_raw(&backend, memory, 100, &stream)?, [5; 100]);
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(memory, bytes(100)) };
    Ok(())
}

fn our_buffers() -> Outcome {
    let device = around(Vulkan::with_capacity(0, None)?)?;
    let (backend, stream) = (device.backend(), device.default_stream());
    let buffers = [1_000, 1_000].map(|len| device.allocate(len, stream).unwrap());
    let places = buffers.each_ref().map(|buffer| buffer.ptr().unwrap());
    let [(first, at), (second, then)] = places.map(VulkanPtr::native);
    assert_eq!((first, at, then), (second, 0, 1_024), "they share a segment");
    let addresses = places.map(|place| backend.device_address(place));
    if let [Some(first), Some(second)] = addresses {
        assert_eq!(second, first + 1_024);
        assert!(first.is_multiple_of(backend.properties().alignment));
    }
    assert_eq!(VulkanPtr::from_native(first, 3).native(), (first, 3));
    drop(buffers);
    check_all_gone(device)
}

/// The function is safe, so it takes any place. A driver follows the handle of a buffer that is not there.
fn places_that_are_not_there() -> Outcome {
    const LEN: u64 = 2 << 20;
    let backend = Vulkan::with_capacity(0, None)?;
    let place = backend.alloc(bytes(LEN))?;
    let (buffer, start) = (place.native().0, place.trace_address());
    if let Some(address) = backend.device_address(place) {
        assert_eq!(address, start);
        assert_eq!(backend.device_address(place.offset(LEN - 1)), Some(address + LEN - 1));
    }
    let none = |place| assert_eq!(backend.device_address(place), None, "{place:?}");
    none(place.offset(LEN));
    none(VulkanPtr::new(buffer, start + 1));
    let made_up = vk::Buffer::from_raw(0xdead);
    none(VulkanPtr::from_native(made_up, 0));
    none(VulkanPtr::new(made_up, start));
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(place, bytes(LEN)) };
    none(place);
    if let Some(pager) = backend.virtual_memory() {
        let place = pager.reserve(bytes(LEN))?;
        assert_eq!(backend.device_address(place.offset(LEN - 1)), Some(place.trace_address() + LEN - 1));
        none(place.offset(LEN));
        none(VulkanPtr::new(place.native().0, start));
        // SAFETY: Nothing is mapped there.
        unsafe { pager.release(place, bytes(LEN)) };
        none(place);
    }
    Ok(())
}

/// Vulkan does not allow to use an object of one logical device with another.
fn events_elsewhere() -> Outcome {
    let (one, other) = (Vulkan::with_capacity(0, None)?, Vulkan::with_capacity(0, None)?);
    let (stream, elsewhere) = (one.stream(StreamKind::Default)?, other.stream(StreamKind::Default)?);
    let invalid = |answer: DriverResult<()>| {
        assert_eq!(answer.map_err(|error| error.kind), Err(DriverErrorKind::InvalidArgument));
    };
    for flags in [EventFlags::default(), EventFlags::TIMING] {
        let Ok(event) = one.event(flags) else { continue }; // not all devices have timing
        invalid(one.record(&event, &elsewhere));
        invalid(other.record(&event, &elsewhere));
        invalid(other.wait(&elsewhere, &event));
        one.record(&event, &stream)?;
        invalid(one.wait(&elsewhere, &event));
        invalid(other.wait(&elsewhere, &event));
        one.wait(&stream, &event)?;
        one.wait_host(&event)?;
    }
    Ok(())
}

fn refused() -> Outcome {
    let native = Vulkan::with_capacity(0, None)?.native();
    for wrong in
        [NativeDevice { queues: Vec::new(), ..native.clone() }, NativeDevice { family: 1_000, ..native.clone() }]
    {
        // SAFETY: The backend uses nothing of it, since it refuses it.
        let error = unsafe { Vulkan::from_native(wrong, None) }.map(drop).unwrap_err();
        assert_eq!((error.kind, error.call), (DriverErrorKind::InvalidArgument, "vkGetDeviceQueue"));
    }
    let old = NativeDevice { version: vk::API_VERSION_1_0, ..native };
    // SAFETY: As above.
    let error = unsafe { Vulkan::from_native(old, None) }.map(drop).unwrap_err();
    assert_eq!(error.kind, DriverErrorKind::Unsupported);
    Ok(())
}
