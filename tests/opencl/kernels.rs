//! Buffers as kernel arguments: sub-buffers, which are created on demand.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;

use accelerator_core::{Accelerator, Buffer, DevicePtr, DriverError, DriverErrorKind, Error, KIB, MIB, Stream};
use accelerator_opencl::cl3::types::{cl_kernel, cl_mem, cl_mem_info, cl_uint};
use accelerator_opencl::cl3::{command_queue, kernel, memory, program};
use accelerator_opencl::{KernelArgument, OpenCl, OpenClPtr};
use libtest_mimic::{Failed, Trial};

use crate::caches::give_back;
use crate::rig::{NO_EVENTS, Outcome, Pending, UserEvent, called, check_all_gone, device, read_raw, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("kernels::an_argument_is_the_buffer_and_no_more", regions),
        trial("kernels::the_same_buffer_gives_the_same_argument", same),
        trial("kernels::more_arguments_than_are_kept", many),
        trial("kernels::an_empty_buffer_is_a_null_pointer", empty),
        trial("kernels::a_stream_of_another_device_is_refused", foreign_stream),
        trial("kernels::an_argument_of_memory_that_is_gone_is_refused", gone),
        trial("kernels::use_on_another_stream_is_noted", noted),
        trial("kernels::write_their_buffers_and_no_neighbour", neighbours),
        trial("kernels::arguments_from_many_threads", threads),
    ]
}

fn told(memory: cl_mem, what: cl_mem_info) -> Result<usize, Failed> {
    called(memory::get_mem_object_info(memory, what).map(usize::from))
}

/// Returns the offset of a sub-buffer in its buffer object.
fn whole(memory: cl_mem) -> Result<isize, Failed> {
    let whole = memory::get_mem_object_info(memory, memory::CL_MEM_ASSOCIATED_MEMOBJECT);
    called(whole.map(isize::from))
}

/// Checks that the argument is exactly the buffer's bytes.
fn check(argument: &KernelArgument<'_>, buffer: &Buffer<OpenCl>) -> Outcome {
    let (segment, offset) = buffer.ptr().unwrap().native();
    assert_eq!(told(argument.native(), memory::CL_MEM_SIZE)? as u64, buffer.len());
    assert_eq!(told(argument.native(), memory::CL_MEM_OFFSET)?, offset);
    assert_eq!(whole(argument.native())?, segment as isize);
    Ok(())
}

fn regions() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    let sizes = [1, 513, 100_000, 512, 7, 2 * MIB + 1, 1_025, MIB, 3 * MIB, 11 * MIB + 3];
    let buffers = sizes.map(|size| device.allocate(size, stream).unwrap());
    let offsets: Vec<usize> = buffers.iter().map(|buffer| buffer.ptr().unwrap().native().1).collect();
    assert_eq!(offsets[..5], [0, 512, 1_536, 101_888, 102_400], "they share a segment");
    for buffer in &buffers {
        check(&KernelArgument::new(buffer, stream)?, buffer)?;
    }
    Ok(())
}

fn same() -> Outcome {
    let device = device()?;
    let (stream, side) = (device.default_stream(), device.stream(0)?);
    let buffers = [1_000, 1_000, 3 * MIB].map(|size| device.allocate(size, stream).unwrap());
    let first = buffers.each_ref().map(|buffer| KernelArgument::new(buffer, stream).unwrap().native());
    let again = buffers.each_ref().map(|buffer| KernelArgument::new(buffer, side).unwrap().native());
    assert_eq!(first, again, "even when the first is no longer used, and on another stream");
    assert!(first[0] != first[1] && first[1] != first[2]);
    let at = buffers[1].ptr();
    drop(buffers);
    device.synchronize()?;
    // A different length at the same address gives a different sub-buffer.
    let _below = device.allocate(1_000, stream)?;
    let shorter = device.allocate(900, stream)?;
    assert_eq!(shorter.ptr(), at);
    let argument = KernelArgument::new(&shorter, stream)?;
    check(&argument, &shorter)?;
    assert_ne!(argument.native(), first[1]);
    Ok(())
}

fn many() -> Outcome {
    const COUNT: u64 = 2_500;
    let device = device()?;
    let stream = device.default_stream();
    let buffers = (0..COUNT).map(|_| device.allocate(512, stream)).collect::<Result<Vec<_>, _>>()?;
    let segments = device.allocator().snapshot().segments;
    assert_eq!(segments.len(), 1, "all are in one buffer object");
    let arguments = buffers.iter().map(|buffer| KernelArgument::new(buffer, stream)).collect::<Result<Vec<_>, _>>()?;
    for (argument, buffer) in arguments.iter().zip(&buffers) {
        check(argument, buffer)?;
    }
    for buffer in &buffers {
        check(&KernelArgument::new(buffer, stream)?, buffer)?;
    }
    // The sub-buffers are released with their segment, and do not keep it reserved.
    drop(arguments);
    drop(buffers);
    check_all_gone(device)
}

fn empty() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    let none = device.allocate(0, stream)?;
    let argument = KernelArgument::new(&none, stream)?;
    assert!(argument.native().is_null());
    // A kernel receives a null pointer.
    let is_null = Kernel::new(
        device,
        c"is_null",
        "kernel void is_null(global uint* there, global uint* of) { of[0] = there == 0 ? 7 : 8; }",
    )?;
    let mut answer = device.allocate(4, stream)?;
    answer.fill(0, stream)?;
    let argument = (argument, KernelArgument::new(&answer, stream)?);
    is_null.launch(&[argument.0.native(), argument.1.native()], 1, stream)?;
    assert_eq!(answer.slice::<u32>()?.to_vec(stream)?, [7]);
    Ok(())
}

fn foreign_stream() -> Outcome {
    let (one, other) = (device()?, device()?);
    for len in [0, 100] {
        let buffer = one.allocate(len, one.default_stream())?;
        let refused = KernelArgument::new(&buffer, other.default_stream());
        assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    }
    Ok(())
}

/// The function is safe, so it takes any pointer.
fn gone() -> Outcome {
    let (one, other) = (device()?, device()?);
    let buffers = [one, other].map(|device| device.allocate(12 * MIB, device.default_stream()).unwrap());
    let [at, elsewhere] = buffers.each_ref().map(|buffer| buffer.ptr().unwrap());
    let refused = |ptr, len| {
        let refused =
            one.backend().kernel_argument(ptr, len).map_err(|error| (error.kind, error.code == DriverError::REFUSED));
        assert_eq!(refused.err(), Some((DriverErrorKind::InvalidArgument, true)), "{len} bytes from {ptr:?}");
    };
    assert_eq!(at.trace_address(), elsewhere.trace_address());
    refused(elsewhere, 512);
    refused(at, (12 << 20) + 1);
    refused(at.offset(12 << 20), 1);
    refused(at.offset(512), usize::MAX);
    let made_up = ptr::without_provenance_mut::<c_void>(0xdead);
    refused(OpenClPtr::from_native(made_up, 0), 512);
    refused(OpenClPtr::from_native(made_up, at.trace_address() as usize), 512);
    check(&one.backend().kernel_argument(at, 12 << 20)?, &buffers[0])?;
    drop(buffers);
    give_back(one)?;
    refused(at, 512);
    Ok(())
}

fn noted() -> Outcome {
    let device = device()?;
    let (default, side) = (device.default_stream(), device.stream(0)?);
    let buffer = device.allocate(64 * KIB, default)?;
    let at = buffer.ptr();
    let held = UserEvent::hold(side)?;
    drop(KernelArgument::new(&buffer, side)?);
    drop(buffer);
    assert_eq!(device.allocator().statistics().active_bytes.all.current, 64 << 10, "freed, but still in use");
    assert_ne!(device.allocate(64 * KIB, default)?.ptr(), at);
    held.let_go()?;
    side.synchronize()?;
    assert_eq!(device.allocate(64 * KIB, default)?.ptr(), at);
    // On the buffer's own stream, no use is recorded.
    let buffer = device.allocate(64 * KIB, default)?;
    let held = UserEvent::hold(default)?;
    drop(KernelArgument::new(&buffer, default)?);
    drop(buffer);
    assert_eq!(device.allocator().statistics().active_bytes.all.current, 0);
    held.let_go()?;
    check_all_gone(device)
}

fn neighbours() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let number = Kernel::new(
        device,
        c"number",
        "kernel void number(global uint* one, global uint* other) {
            size_t i = get_global_id(0);
            one[i] = 1000 + i;
            other[i] = 0xFFFFFFFF - i;
        }",
    )?;
    // The request is smaller than the block of 512 bytes.
    let mut buffers = [400; 5].map(|len| device.allocate(len, stream).unwrap());
    for (value, buffer) in buffers.iter_mut().enumerate() {
        buffer.fill(value as u8, stream)?;
    }
    let [start, ..] = buffers.each_ref().map(|buffer| buffer.ptr().unwrap());
    let before = read_raw(device.backend(), start, 5 * 512, stream.native())?;
    let arguments = (KernelArgument::new(&buffers[1], stream)?, KernelArgument::new(&buffers[3], stream)?);
    number.launch(&[arguments.0.native(), arguments.1.native()], 100, stream)?;
    let after = read_raw(device.backend(), start, 5 * 512, stream.native())?;

    let mut expected = before;
    let bytes = |numbers: &mut dyn Iterator<Item = u32>| numbers.flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
    expected[512..][..400].copy_from_slice(&bytes(&mut (1_000..1_100)));
    expected[3 * 512..][..400].copy_from_slice(&bytes(&mut (0..100).map(|i| u32::MAX - i)));
    assert!(after == expected);
    Ok(())
}

fn threads() -> Outcome {
    let device = device()?;
    let stream = device.default_stream();
    let add = "kernel void add(global uint* to) { to[get_global_id(0)] += 1; }";
    let mut buffers: Vec<_> = (0..64).map(|_| device.allocate(1_024, stream)).collect::<Result<_, _>>()?;
    buffers.iter_mut().try_for_each(|buffer| buffer.fill(0, stream))?;
    device.synchronize()?;
    std::thread::scope(|scope| {
        let run = |worker: usize| -> Outcome {
            let (add, stream) = (Kernel::new(device, c"add", add)?, device.stream(0)?);
            for round in 0..200 {
                // All threads create arguments from the same buffers; each adds to its own buffer.
                let argument = KernelArgument::new(&buffers[round % 64], stream)?;
                check(&argument, &buffers[round % 64])?;
                let own = KernelArgument::new(&buffers[worker], stream)?;
                add.launch(&[own.native()], 256, stream)?;
            }
            Ok(stream.synchronize()?)
        };
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || run(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap())
    })?;
    for (number, buffer) in buffers.iter().enumerate() {
        let expected = if number < 4 { 200 } else { 0 };
        assert_eq!(buffer.slice::<u32>()?.to_vec(stream)?, [expected; 256], "buffer {number}");
    }
    Ok(())
}

/// A kernel that another library compiled.
pub(crate) struct Kernel(pub(crate) cl_kernel);

impl Kernel {
    pub(crate) fn new(device: &'static Accelerator<OpenCl>, name: &CStr, source: &str) -> Result<Self, Failed> {
        Self::on(device.backend(), name, source)
    }

    pub(crate) fn on(backend: &OpenCl, name: &CStr, source: &str) -> Result<Self, Failed> {
        let (context, id) = backend.native();
        let program = called(program::create_program_with_source(context, &[source]))?;
        called(program::build_program(program, &[id], c"", None, ptr::null_mut()))?;
        let made = called(kernel::create_kernel(program, name));
        // SAFETY: Releases the reference from its creation; the kernel has its own.
        called(unsafe { program::release_program(program) })?;
        made.map(Self)
    }

    /// Enqueues it for this many work items. Its parameters are memory objects.
    pub(crate) fn launch(&self, arguments: &[cl_mem], items: usize, stream: Stream<OpenCl>) -> Outcome {
        for (place, argument) in (0 as cl_uint..).zip(arguments) {
            let value = (&raw const *argument).cast();
            // SAFETY: The kernel has such a parameter.
            called(unsafe { kernel::set_kernel_arg(self.0, place, size_of::<cl_mem>(), value) })?;
        }
        let (queue, none) = (stream.native().native(), ptr::null());
        // SAFETY: All arguments are set, and have as many elements as there are work items.
        let launched =
            unsafe { command_queue::enqueue_nd_range_kernel(queue, self.0, 1, none, &items, none, 0, NO_EVENTS) };
        called(launched).map(|event| drop(Pending(event)))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: Releases the reference from its creation.
        let _ = unsafe { kernel::release_kernel(self.0) };
    }
}
