//! y += a * x with a real kernel, on our buffers and our stream, checked against the host.
//!
//! The kernel is compiled and launched with the crate `cl3`. Any other OpenCL binding would do, since only native
//! handles are exchanged.

use std::error::Error;
use std::process::ExitCode;
use std::ptr;

use accelerator_core::{Accelerator, Buffer, Stream};
use accelerator_opencl::cl3::error_codes::ClError;
use accelerator_opencl::cl3::types::cl_kernel;
use accelerator_opencl::cl3::{command_queue, event, kernel, program};
use accelerator_opencl::{KernelArgument, OpenCl};

const SOURCE: &str = "
    kernel void saxpy(float a, global const float* x, global float* y) {
        size_t i = get_global_id(0);
        y[i] += a * x[i];
    }";
const ELEMENTS: usize = 1 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("saxpy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let device = Accelerator::<OpenCl>::open(0)?;
    let stream = device.stream(0)?;
    let properties = device.properties();
    println!("{} is {} ({})", device.device(), properties.name, properties.driver);

    // Whole numbers below 2²⁴ are exact, whether or not a device fuses multiplication and addition.
    let x: Vec<f32> = (0..ELEMENTS).map(|i| (i % 1000) as f32).collect();
    let y: Vec<f32> = (0..ELEMENTS).map(|i| (i % 777) as f32).collect();
    let size = size_of_val(x.as_slice()) as u64;
    let (mut device_x, mut device_y) = (device.allocate(size, stream)?, device.allocate(size, stream)?);
    device_x.slice_mut()?.write(&x, stream)?;
    device_y.slice_mut()?.write(&y, stream)?;

    let saxpy = compile(device.backend())?;
    launch(saxpy, 3.0, &device_x, &mut device_y, stream)?;
    drop(device_x); // its memory is not reused before the kernel is done
    // SAFETY: This is a kernel, and it is not used again; the driver keeps it until its work is done.
    unsafe { kernel::release_kernel(saxpy) }.map_err(ClError)?;

    let result: Vec<f32> = device_y.slice()?.to_vec(stream)?;
    let expected = x.iter().zip(&y).map(|(x, y)| 3.0 * x + y);
    let wrong = result.iter().zip(expected).filter(|(result, expected)| **result != *expected).count();
    if wrong > 0 {
        return Err(format!("{wrong} of {ELEMENTS} elements differ from the host's").into());
    }
    println!("{ELEMENTS} elements equal the host's");
    Ok(())
}

fn compile(backend: &OpenCl) -> Result<cl_kernel, Box<dyn Error>> {
    let (context, device) = backend.native();
    let program = program::create_program_with_source(context, &[SOURCE]).map_err(ClError)?;
    program::build_program(program, &[device], c"", None, ptr::null_mut()).map_err(|code| {
        let log = program::get_program_build_info(program, device, program::CL_PROGRAM_BUILD_LOG);
        format!("{}\n{}", ClError(code), log.map(String::from).unwrap_or_default())
    })?;
    let kernel = kernel::create_kernel(program, c"saxpy").map_err(ClError)?;
    // SAFETY: This is a program, and the kernel keeps it alive.
    unsafe { program::release_program(program) }.map_err(ClError)?;
    Ok(kernel)
}

/// Launches the kernel. Both buffers have the same length.
fn launch(
    saxpy: cl_kernel,
    a: f32,
    x: &Buffer<OpenCl>,
    y: &mut Buffer<OpenCl>,
    stream: Stream<OpenCl>,
) -> Result<(), Box<dyn Error>> {
    let elements = y.slice::<f32>()?.len();
    // This records that the stream uses the buffers.
    let arguments = (KernelArgument::new(x, stream)?, KernelArgument::new(y, stream)?);
    let (x, y) = (arguments.0.native(), arguments.1.native());
    // SAFETY: The kernel has these parameters.
    unsafe { kernel::set_kernel_arg(saxpy, 0, size_of_val(&a), (&raw const a).cast()) }.map_err(ClError)?;
    // SAFETY: As above.
    unsafe { kernel::set_kernel_arg(saxpy, 1, size_of_val(&x), (&raw const x).cast()) }.map_err(ClError)?;
    // SAFETY: As above.
    unsafe { kernel::set_kernel_arg(saxpy, 2, size_of_val(&y), (&raw const y).cast()) }.map_err(ClError)?;
    let (queue, none) = (stream.native().native(), ptr::null());
    // SAFETY: The arguments are set and live until here, and both have as many elements as there are work items.
    let launched =
        unsafe { command_queue::enqueue_nd_range_kernel(queue, saxpy, 1, none, &elements, none, 0, ptr::null()) };
    // SAFETY: The call returned a reference that we own and do not need: the stream itself tracks when its work is
    // done.
    unsafe { event::release_event(launched.map_err(ClError)?) }.map_err(ClError)?;
    Ok(())
}
