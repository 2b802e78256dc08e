#![allow(unsafe_code)] // calls the driver

use std::ptr;

use accelerator_core::Backend;
use accelerator_opencl::OpenCl;
use accelerator_opencl::cl3::error_codes::ClError;
use accelerator_opencl::cl3::types::cl_kernel;
use accelerator_opencl::cl3::{command_queue, event, kernel, program};

use super::{Launched, Offered, Saxpy};

const SOURCE: &str = include_str!("saxpy.cl");

pub(super) fn offered() -> Offered<OpenCl> {
    Offered::new()
        .about("The first OpenCL device, in the order of `ACCELERATOR_OPENCL_DEVICES`")
        .variables(&["ACCELERATOR_OPENCL_DEVICES", "ACCELERATOR_OPENCL_CAPACITY"])
        .open(|capacity| match capacity {
            Some(_) => OpenCl::with_capacity(0, capacity),
            None => OpenCl::open(0), // the environment may set a capacity
        })
        .kernel(saxpy)
}

fn saxpy(arguments: Saxpy<OpenCl>) -> Launched {
    let saxpy = compile(arguments.backend)?;
    let launched = launch(saxpy, &arguments);
    // SAFETY: `saxpy` is a kernel that is not used again. The driver keeps it until its work is done.
    let released = unsafe { kernel::release_kernel(saxpy) };
    launched.and(released.map_err(|code| ClError(code).into()))
}

fn compile(backend: &OpenCl) -> Result<cl_kernel, Box<dyn std::error::Error + Send + Sync>> {
    let (context, device) = backend.native();
    let program = program::create_program_with_source(context, &[SOURCE]).map_err(ClError)?;
    let kernel = program::build_program(program, &[device], c"", None, ptr::null_mut())
        .and_then(|()| kernel::create_kernel(program, c"saxpy"))
        .map_err(|code| {
            let log = program::get_program_build_info(program, device, program::CL_PROGRAM_BUILD_LOG);
            format!("{}: {}", ClError(code), log.map(String::from).unwrap_or_default().trim())
        });
    // SAFETY: `program` is not used again, and the kernel keeps it alive.
    unsafe { program::release_program(program) }.map_err(ClError)?;
    Ok(kernel?)
}

fn launch(saxpy: cl_kernel, arguments: &Saxpy<OpenCl>) -> Launched {
    let Saxpy { backend, stream, a, x, y, count } = arguments;
    let bytes = count * size_of::<f32>();
    let (x, y) = (backend.kernel_argument(*x, bytes)?, backend.kernel_argument(*y, bytes)?);
    let (x, y) = (x.native(), y.native());
    // SAFETY: The kernel has these parameters.
    unsafe { kernel::set_kernel_arg(saxpy, 0, size_of_val(a), (&raw const *a).cast()) }.map_err(ClError)?;
    // SAFETY: As above.
    unsafe { kernel::set_kernel_arg(saxpy, 1, size_of_val(&x), (&raw const x).cast()) }.map_err(ClError)?;
    // SAFETY: As above.
    unsafe { kernel::set_kernel_arg(saxpy, 2, size_of_val(&y), (&raw const y).cast()) }.map_err(ClError)?;
    let (queue, none) = (stream.native(), ptr::null());
    // SAFETY: All arguments are set and still alive, and both buffers have one element for each work item.
    let launched =
        unsafe { command_queue::enqueue_nd_range_kernel(queue, saxpy, 1, none, count, none, 0, ptr::null()) };
    // SAFETY: The launch returned an owned event, which is not needed: the stream tracks when its work is done.
    unsafe { event::release_event(launched.map_err(ClError)?) }.map_err(ClError)?;
    Ok(())
}
