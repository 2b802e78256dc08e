//! Using other libraries' handles, and passing ours to other libraries.
#![allow(unsafe_code)]

use std::ptr;
use std::time::Duration;

use accelerator_core::{Accelerator, Backend, Buffer, DevicePtr, DriverErrorKind, EventFlags, KIB, MIB, Place, Stream};
use accelerator_opencl::cl3::types::{
    CL_BLOCKING, cl_command_queue, cl_command_queue_properties, cl_context, cl_device_id, cl_int, cl_mem,
};
use accelerator_opencl::cl3::{command_queue, context, memory};
use accelerator_opencl::{KernelArgument, OpenCl, OpenClPtr};
use libtest_mimic::{Failed, Trial};

use crate::kernels::Kernel;
use crate::rig::{
    NO_EVENTS, Outcome, Pending, UserEvent, around, becomes_true, bytes, called, check_all_gone, check_busy, device,
    trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("native::our_buffers_in_a_context_made_elsewhere", context_made_elsewhere),
        trial("native::a_queue_made_elsewhere_is_waited_for", queue_made_elsewhere),
        trial("native::queues_that_will_not_do_are_refused", refused_queues),
        trial("native::a_buffer_object_made_elsewhere", buffer_made_elsewhere),
        trial("native::our_handles_are_what_the_driver_says", our_handles),
        trial("native::work_given_to_a_queue_past_us_is_seen", work_past_us),
        trial("native::one_context_opened_twice", opened_twice),
    ]
}

/// A context and a queue created by another library.
struct Elsewhere {
    context: cl_context,
    queue: cl_command_queue,
    device: cl_device_id,
}

impl Elsewhere {
    fn new() -> Result<Self, Failed> {
        let (_, device) = OpenCl::with_capacity(0, None)?.native();
        let context = called(context::create_context(&[device], ptr::null(), None, ptr::null_mut()))?;
        let queue = called(queue(context, device, command_queue::CL_QUEUE_PROFILING_ENABLE))?;
        Ok(Self { context, queue, device })
    }

    /// Creates a backend for the context.
    fn backend(&self) -> Result<OpenCl, Failed> {
        // SAFETY: The context is live, and the device belongs to it.
        Ok(unsafe { OpenCl::from_native(self.context, self.device, Some(100 * MIB)) }?)
    }

    /// Adopts the queue as a stream of a device in the context.
    fn adopted_by(&self, device: &'static Accelerator<OpenCl>) -> Result<Stream<OpenCl>, Failed> {
        // SAFETY: The queue is live, belongs to this context and device, and is in order with profiling.
        let stream = unsafe { device.backend().adopt(self.queue) }?;
        // SAFETY: It is a stream of this backend.
        Ok(unsafe { device.external_stream(stream) })
    }

    /// Returns the reference count of the queue, including our references.
    fn references(&self) -> Result<u32, Failed> {
        let what = command_queue::CL_QUEUE_REFERENCE_COUNT;
        called(command_queue::get_command_queue_info(self.queue, what).map(u32::from))
    }

    /// Releases both. Remaining users have their own references.
    fn let_go(self) -> Outcome {
        // SAFETY: Releases the reference from its creation.
        called(unsafe { command_queue::release_command_queue(self.queue) })?;
        // SAFETY: As above.
        called(unsafe { context::release_context(self.context) })
    }
}

fn queue(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
) -> Result<cl_command_queue, cl_int> {
    #[allow(deprecated, reason = "the call that drivers of every version have")]
    // SAFETY: Every caller passes a device of the context.
    unsafe {
        command_queue::create_command_queue(context, device, properties)
    }
}

/// Writes to the buffer on this queue without the backend.
fn write(queue: cl_command_queue, to: &Buffer<OpenCl>, data: &[u8]) -> Outcome {
    let (buffer, offset) = to.ptr().unwrap().native();
    let from = data.as_ptr().cast();
    // SAFETY: The buffer has that many bytes, and the call returns when it has read the host's.
    let written = unsafe {
        command_queue::enqueue_write_buffer(queue, buffer, CL_BLOCKING, offset, data.len(), from, 0, NO_EVENTS)
    };
    called(written).map(|event| drop(Pending(event)))
}

/// Reads from a buffer object on this queue without the backend.
fn read(queue: cl_command_queue, from: cl_mem, offset: usize, len: usize) -> Result<Vec<u8>, Failed> {
    let mut data = vec![0; len];
    let to = data.as_mut_ptr().cast();
    // SAFETY: The buffer object has that many bytes, and the call returns when it has written the host's.
    let read = unsafe { command_queue::enqueue_read_buffer(queue, from, CL_BLOCKING, offset, len, to, 0, NO_EVENTS) };
    drop(Pending(called(read)?));
    Ok(data)
}

fn context_made_elsewhere() -> Outcome {
    let elsewhere = Elsewhere::new()?;
    let device = around(elsewhere.backend()?)?;
    assert_eq!(device.backend().native(), (elsewhere.context, elsewhere.device));
    assert_eq!(device.memory_info()?.total, 100 * MIB);
    assert_eq!(elsewhere.references()?, 1);
    let stream = elsewhere.adopted_by(device)?;
    assert_eq!((stream.native().native(), elsewhere.references()?), (elsewhere.queue, 2));

    // Each side reads the bytes that the other writes.
    let _below = device.allocate(700, stream)?;
    let mut buffer = device.allocate(3_000, stream)?;
    write(elsewhere.queue, &buffer, &[5; 3_000])?;
    assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, [5; 3_000]);
    buffer.fill(6, stream)?;
    let (native, offset) = buffer.ptr().unwrap().native();
    assert_eq!(offset, 1_024);
    assert_eq!(read(elsewhere.queue, native, offset, 3_000)?, [6; 3_000]);

    // The context and the queue stay alive while we use them.
    let queue = elsewhere.queue;
    elsewhere.let_go()?;
    buffer.fill(7, stream)?;
    assert_eq!(read(queue, native, offset, 3_000)?, [7; 3_000]);
    let other = device.stream(0)?;
    let mut large = device.allocate(30 * MIB, other)?;
    large.fill(8, other)?;
    stream.wait_stream(other)?;
    assert!(large.slice::<u8>()?.to_vec(stream)? == vec![8; 30 << 20]);
    drop((_below, buffer, large));
    check_all_gone(device)
}

fn queue_made_elsewhere() -> Outcome {
    let elsewhere = Elsewhere::new()?;
    let device = around(elsewhere.backend()?)?;
    let (stream, default) = (elsewhere.adopted_by(device)?, device.default_stream());
    let (start, end) = (device.event(EventFlags::TIMING), device.event(EventFlags::TIMING));
    start.record(stream)?;
    let (held, _) = UserEvent::ahead_of(device.backend(), stream.native())?;
    let mut buffer = device.allocate(64 * KIB, default)?;
    let at = buffer.ptr();
    buffer.fill(1, stream)?;
    end.record(stream)?;
    check_busy(stream)?;
    assert!(!end.is_complete()?);
    drop(buffer);
    assert_ne!(device.allocate(64 * KIB, default)?.ptr(), at, "the queue still uses it");
    let waits = std::thread::spawn(move || device.synchronize());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waits.is_finished());
    held.let_go()?;
    waits.join().unwrap()?;
    becomes_true(|| Ok(stream.is_idle()?))?;
    assert!(end.is_complete()?);
    assert!(start.elapsed_time(&end)? >= 0.0);
    assert_eq!(device.allocate(64 * KIB, default)?.ptr(), at);
    // The same queue, adopted again, is another stream with the same order.
    let again = elsewhere.adopted_by(device)?;
    assert!(again != stream && again.native().native() == stream.native().native());
    let held = UserEvent::hold(stream)?;
    check_busy(again)?; // regardless of which stream submitted the work
    held.let_go()?;
    becomes_true(|| Ok(again.is_idle()?))?;
    // A dropped stream releases its reference.
    let before = elsewhere.references()?;
    for _ in 0..100 {
        // SAFETY: The queue is live.
        drop(unsafe { device.backend().adopt(elsewhere.queue) }?);
    }
    assert_eq!(elsewhere.references()?, before);
    elsewhere.let_go()?;
    check_all_gone(device)
}

fn refused_queues() -> Outcome {
    let (elsewhere, backend) = (Elsewhere::new()?, OpenCl::with_capacity(0, None)?);
    let refused = |queue| {
        // SAFETY: Every queue below is live. The backend detects queues that are unsuitable.
        let error = unsafe { backend.adopt(queue) }.unwrap_err();
        assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
        error.name
    };
    assert_eq!(refused(elsewhere.queue), "CL_INVALID_CONTEXT");
    let (context, device) = backend.native();
    // Not all drivers support such queues.
    if let Ok(queue) = queue(context, device, command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) {
        assert_eq!(refused(queue), "CL_INVALID_QUEUE_PROPERTIES");
        // SAFETY: Releases the reference from its creation.
        called(unsafe { command_queue::release_command_queue(queue) })?;
    }
    elsewhere.let_go()
}

fn buffer_made_elsewhere() -> Outcome {
    const LEN: usize = 10_000;
    let device = device()?;
    let (backend, stream) = (device.backend(), device.stream(0)?);
    let flags = memory::CL_MEM_READ_WRITE | memory::CL_MEM_COPY_HOST_PTR;
    let mut data: Vec<u8> = (0..LEN).map(|n| (n % 253) as u8).collect();
    // SAFETY: The context is live, and the driver copies exactly the bytes that are there.
    let made = unsafe { memory::create_buffer(backend.native().0, flags, LEN, data.as_mut_ptr().cast()) };
    let theirs = called(made)?;
    let ours = device.allocate(20_000, stream)?;
    let at = ours.ptr().unwrap();
    let copy = |to, from, len| {
        let ends = (Place::Device(to), Place::Device(from));
        // SAFETY: Every call below stays inside 10,000 bytes of theirs and 20,000 of ours. The backend detects
        // overlapping ranges.
        unsafe { backend.copy(ends.0, ends.1, bytes(len), stream.native()) }
    };
    // Copies everything to our buffer and a part of it back to another place, and fills a range.
    copy(at.offset(5_000), OpenClPtr::from_native(theirs, 0), 10_000)?;
    copy(OpenClPtr::from_native(theirs, 9_000), at.offset(5_000), 1_000)?;
    // SAFETY: It has that many bytes.
    unsafe { backend.fill(OpenClPtr::from_native(theirs, 100), 0xEE, bytes(50), stream.native()) }?;
    let mut found = vec![0; LEN];
    ours.read(5_000, &mut found, stream)?;
    assert!(found == data);
    data.copy_within(..1_000, 9_000);
    data[100..150].fill(0xEE);
    assert!(read(stream.native().native(), theirs, 0, LEN)? == data);
    let inside = OpenClPtr::from_native(theirs, 0);
    assert!(copy(inside.offset(10), inside, 11).is_err(), "these ranges overlap");
    assert_eq!(inside.offset(10), OpenClPtr::from_native(theirs, 10));

    // Dropping our side does not release the other library's object.
    drop(ours);
    check_all_gone(device)?;
    // The driver releases its reference some time after the last work is done.
    let references = || called(memory::get_mem_object_info(theirs, memory::CL_MEM_REFERENCE_COUNT).map(u32::from));
    becomes_true(|| Ok(references()? == 1))?;
    // SAFETY: Releases the reference from its creation.
    called(unsafe { memory::release_mem_object(theirs) })
}

fn our_handles() -> Outcome {
    let device = device()?;
    let (stream, (context, id)) = (device.stream(0)?, device.backend().native());
    let of_queue = |what| {
        let told = command_queue::get_command_queue_info(stream.native().native(), what);
        called(told.map(isize::from))
    };
    assert_eq!(of_queue(command_queue::CL_QUEUE_CONTEXT)?, context as isize);
    assert_eq!(of_queue(command_queue::CL_QUEUE_DEVICE)?, id as isize);
    let buffer = device.allocate(100, stream)?;
    let (native, offset) = buffer.ptr().unwrap().native();
    let of_buffer = memory::get_mem_object_info(native, memory::CL_MEM_CONTEXT).map(isize::from);
    assert_eq!((called(of_buffer)?, offset), (context as isize, 0));
    let segment = memory::get_mem_object_info(native, memory::CL_MEM_SIZE).map(usize::from);
    assert_eq!(called(segment)?, 2 << 20, "the whole segment");
    Ok(())
}

fn work_past_us() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let buffer = device.allocate(400, stream)?;
    let set = Kernel::new(device, c"set", "kernel void set(global uint* to) { to[get_global_id(0)] = 3; }")?;
    stream.synchronize()?;
    assert!(stream.is_idle()?);
    let (held, _) = UserEvent::ahead_of(device.backend(), stream.native())?;
    let argument = KernelArgument::new(&buffer, stream)?;
    set.launch(&[argument.native()], 100, stream)?;
    check_busy(stream)?; // a kernel is waiting that only the driver knows of
    let event = device.event(EventFlags::default());
    event.record(stream)?;
    assert!(!event.is_complete()?);
    held.let_go()?;
    event.synchronize()?;
    assert!(event.is_complete()?);
    stream.synchronize()?;
    becomes_true(|| Ok(stream.is_idle()?))?;
    assert_eq!(buffer.slice::<u32>()?.to_vec(stream)?, [3; 100]);
    Ok(())
}

fn opened_twice() -> Outcome {
    let elsewhere = Elsewhere::new()?;
    let (one, other) = (around(elsewhere.backend()?)?, around(elsewhere.backend()?)?);
    // The two backends share only OpenCL objects, yet one can copy from an address of the other.
    let mut source = one.allocate(5_000, one.default_stream())?;
    source.fill(4, one.default_stream())?;
    one.synchronize()?;
    let target = other.allocate(5_000, other.default_stream())?;
    let (to, from) = (Place::Device(target.ptr().unwrap()), Place::Device(source.ptr().unwrap()));
    let stream = other.default_stream();
    // SAFETY: Both have that many bytes, and stay alive until the read below is done.
    unsafe { other.backend().copy(to, from, bytes(5_000), stream.native()) }?;
    assert_eq!(target.slice::<u8>()?.to_vec(stream)?, [4; 5_000]);
    assert_eq!(one.allocator().statistics().allocation.all.current, 1);
    elsewhere.let_go()?;
    drop((source, target));
    check_all_gone(one)?;
    check_all_gone(other)
}
