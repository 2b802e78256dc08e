//! y += a * x with a compute shader, on our buffers and our stream, checked against the host.
//!
//! `saxpy.comp` is the source of the shader, and has the command that compiled it.

use std::error::Error;
use std::process::ExitCode;

use accelerator_core::{Accelerator, Buffer, Stream};
use accelerator_vulkan::{Argument, Kernel, Vulkan};

const CODE: &[u8] = include_bytes!("saxpy.spv");
const ELEMENTS: u32 = 1 << 20;
/// The size of a work group in the shader.
const GROUP: u32 = 64;

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
    let device = Accelerator::<Vulkan>::open(0)?;
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

    // SAFETY: The shader is valid. It has two buffers, and two values of 4 bytes.
    let saxpy = unsafe { device.backend().kernel(CODE, c"main", 2, 8) }?;
    launch(&saxpy, 3.0, &device_x, &mut device_y, stream)?;
    drop(device_x); // its memory is not reused before the kernel is done

    let result: Vec<f32> = device_y.slice()?.to_vec(stream)?;
    let expected = x.iter().zip(&y).map(|(x, y)| 3.0 * x + y);
    let wrong = result.iter().zip(expected).filter(|(result, expected)| **result != *expected).count();
    if wrong > 0 {
        return Err(format!("{wrong} of {ELEMENTS} elements differ from the host's").into());
    }
    println!("{ELEMENTS} elements equal the host's");
    Ok(())
}

/// Launches the kernel. Both buffers have the same length.
fn launch(
    saxpy: &Kernel,
    a: f32,
    x: &Buffer<Vulkan>,
    y: &mut Buffer<Vulkan>,
    stream: Stream<Vulkan>,
) -> Result<(), Box<dyn Error>> {
    let elements = y.slice::<f32>()?.len() as u32;
    let arguments = [Argument::Buffer(x), Argument::Buffer(y), Argument::value(&a), Argument::value(&elements)];
    // SAFETY: The arguments are those of the shader, which uses as many elements of both buffers. Nothing else uses
    // them now.
    unsafe { saxpy.launch(stream, [elements.div_ceil(GROUP), 1, 1], &arguments) }?;
    Ok(())
}
