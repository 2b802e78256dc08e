//! y += a * x with a real kernel, on our buffers and our stream, checked against the host.
//!
//! The kernel is SPIR-V, which the driver compiles: `saxpy.spvasm`, assembled to `saxpy.spv`.
#![allow(unsafe_code)] // calls the driver

use std::error::Error;
use std::process::ExitCode;

use accelerator_core::Accelerator;
use accelerator_xpu::{Argument, Xpu};

const SPIRV: &[u8] = include_bytes!("saxpy.spv");
/// The size of a group, which every Intel GPU supports.
const THREADS: u32 = 256;
const ELEMENTS: usize = (1 << 20) + 1; // not a multiple of the group size

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
    let device = Accelerator::<Xpu>::open(0)?;
    let stream = device.stream(0)?;
    let properties = device.properties();
    println!("{} is {} ({})", device.device(), properties.name, properties.driver);

    // Whole numbers below 2²⁴ are exact, whether or not the compiler fuses multiplication and addition. None of them is
    // 0, since untouched memory may be 0.
    let x: Vec<f32> = (0..ELEMENTS).map(|i| (i % 1000 + 1) as f32).collect();
    let y: Vec<f32> = (0..ELEMENTS).map(|i| (i % 777 + 1) as f32).collect();
    let size = size_of_val(x.as_slice()) as u64;
    let (mut device_x, mut device_y) = (device.allocate(size, stream)?, device.allocate(size, stream)?);
    device_x.slice_mut()?.write(&x, stream)?;
    device_y.slice_mut()?.write(&y, stream)?;
    println!("copied two arrays of {ELEMENTS} floats to the device");

    // SAFETY: The SPIR-V assembler made the file.
    let module = unsafe { device.backend().module(SPIRV, c"") }?;
    let mut saxpy = module.kernel(c"saxpy")?;
    println!("the driver compiled the kernel");
    let (count, factor) = (ELEMENTS as u32, 3.0_f32);
    let groups = [count.div_ceil(THREADS), 1, 1];
    let arguments =
        [Argument::value(&count), Argument::value(&factor), Argument::Buffer(&device_x), Argument::Buffer(&device_y)];
    // SAFETY: The arguments match the kernel, which skips threads beyond the count.
    unsafe { saxpy.launch(stream, groups, [THREADS, 1, 1], &arguments) }?;
    stream.synchronize()?;
    println!("launched the kernel and waited for it");
    let (x_back, result): (Vec<f32>, Vec<f32>) = (device_x.slice()?.to_vec(stream)?, device_y.slice()?.to_vec(stream)?);
    check(&x, &y, &x_back, &result)
}

fn check(x: &[f32], y: &[f32], x_back: &[f32], result: &[f32]) -> Result<(), Box<dyn Error>> {
    // The kernel only reads x.
    if x_back != x {
        return Err("x did not come back from the device unchanged. Either this driver accepts commands but executes \
                    nothing, as Intel's does without a GPU, or it is broken. The kernel could not be checked"
            .into());
    }
    let expected = x.iter().zip(y).map(|(x, y)| 3.0 * x + y);
    let wrong = result.iter().zip(expected).filter(|(result, expected)| **result != *expected).count();
    if wrong > 0 {
        return Err(format!("{wrong} of {ELEMENTS} elements differ from the host's").into());
    }
    println!("{ELEMENTS} elements equal the host's");
    Ok(())
}
