//! Sharing objects with `ocl-core` in both directions. Like that crate, this test needs the OpenCL loader at build
//! time.
#![allow(clippy::unwrap_used, reason = "a test stops at what should not happen")]

use std::ffi::CString;

use accelerator_core::{Accelerator, AllocatorConfig, Buffer, DriverErrorKind, MIB, Stream};
use accelerator_opencl::ocl_core::{self, ArgVal, CommandQueueProperties, Context, ContextProperties, DeviceId};
use accelerator_opencl::{KernelArgument, OpenCl};

const SOURCE: &str = "kernel void square(global uint* x) { size_t i = get_global_id(0); x[i] = x[i] * x[i]; }";

/// Squares the elements with a kernel that `ocl-core` compiles and launches.
fn square(stream: Stream<OpenCl>, numbers: &mut Buffer<OpenCl>) {
    let (context, device) = stream.backend().ocl().unwrap();
    let (source, options) = (CString::new(SOURCE).unwrap(), CString::default());
    let program = ocl_core::create_program_with_source(&context, &[source]).unwrap();
    ocl_core::build_program(&program, Some(&[device]), &options, None, None).unwrap();
    let kernel = ocl_core::create_kernel(&program, "square").unwrap();
    let argument = KernelArgument::new(numbers, stream).unwrap();
    // SAFETY: The buffer is borrowed mutably until the kernel is enqueued on this stream.
    let argument = unsafe { argument.ocl() }.unwrap().unwrap();
    ocl_core::set_kernel_arg(&kernel, 0, ArgVal::mem(&argument)).unwrap();
    let (queue, work) = (stream.native().ocl().unwrap(), [(numbers.len() / 4) as usize, 1, 1]);
    // SAFETY: The argument is set and has as many elements as there are work items.
    unsafe {
        ocl_core::enqueue_kernel(
            &queue,
            &kernel,
            1,
            None,
            &work,
            None,
            None::<ocl_core::Event>,
            None::<&mut ocl_core::Event>,
        )
    }
    .unwrap();
}

fn check(device: &'static Accelerator<OpenCl>, stream: Stream<OpenCl>) {
    let numbers: Vec<u32> = (0..10_000).collect();
    let mut buffer = device.allocate(40_000, stream).unwrap();
    buffer.slice_mut().unwrap().write(&numbers, stream).unwrap();
    square(stream, &mut buffer);
    let squares: Vec<u32> = numbers.iter().map(|number| number * number).collect();
    assert_eq!(buffer.slice::<u32>().unwrap().to_vec(stream).unwrap(), squares);
    let empty = device.allocate(0, stream).unwrap();
    // SAFETY: An empty buffer has no memory to use.
    assert!(unsafe { KernelArgument::new(&empty, stream).unwrap().ocl() }.unwrap().is_none());
}

/// Makes an `ocl-core` context on the first device.
fn context() -> (Context, DeviceId) {
    let ours = Accelerator::<OpenCl>::open(0).unwrap().backend().ocl().unwrap();
    let properties = ContextProperties::new();
    (ocl_core::create_context(Some(&properties), &[ours.1], None, None).unwrap(), ours.1)
}

#[test]
fn their_kernels_run_on_our_buffers_and_streams() {
    let device = Accelerator::<OpenCl>::open(0).unwrap();
    check(device, device.stream(0).unwrap());
}

#[test]
fn our_buffers_live_in_their_context_and_work_in_their_queue() {
    let (context, device) = context();
    let backend = OpenCl::from_ocl(&context, &device, Some(64 * MIB)).unwrap();
    let accelerator = Accelerator::new(backend, 0, AllocatorConfig::default()).unwrap();
    let queue = ocl_core::create_command_queue(&context, device, None).unwrap();
    let native = accelerator.backend().adopt_ocl(&queue).unwrap();
    // SAFETY: The stream belongs to this backend.
    let stream = unsafe { accelerator.external_stream(native) };
    drop((context, queue)); // our objects hold references
    assert_eq!(accelerator.memory_info().unwrap().total, 64 * MIB);
    check(accelerator, stream);
}

#[test]
fn queues_that_would_break_the_rules_are_refused() {
    let accelerator = Accelerator::<OpenCl>::open(0).unwrap();
    let (ours, device) = accelerator.backend().ocl().unwrap();
    let foreign = ocl_core::create_command_queue(&context().0, device, None).unwrap();
    let unordered = CommandQueueProperties::OUT_OF_ORDER_EXEC_MODE_ENABLE;
    let unordered = ocl_core::create_command_queue(&ours, device, Some(unordered)).unwrap();
    for (queue, name) in [(foreign, "CL_INVALID_CONTEXT"), (unordered, "CL_INVALID_QUEUE_PROPERTIES")] {
        let error = accelerator.backend().adopt_ocl(&queue).unwrap_err();
        assert_eq!((error.kind, error.name), (DriverErrorKind::InvalidArgument, name));
    }
}
