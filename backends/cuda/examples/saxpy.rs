//! y += a * x with a real kernel, on our buffers and our stream, checked against the host.
//!
//! The kernel is compiled by NVRTC, NVIDIA's compiler library, and launched with the crate `cudarc`.

use std::error::Error;
use std::process::ExitCode;

use accelerator_core::{Accelerator, Buffer, Stream};
use accelerator_cuda::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use accelerator_cuda::cudarc::nvrtc;
use accelerator_cuda::{Cuda, CudaView, CudaViewMut};

const SOURCE: &str = r#"
    extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }"#;
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
    let device = Accelerator::<Cuda>::open(0)?;
    let stream = device.stream(0)?;
    let properties = device.properties();
    println!("{} is {} ({})", device.device(), properties.name, properties.driver);

    // Whole numbers below 2²⁴ are exact, whether or not the compiler fuses multiplication and addition.
    let x: Vec<f32> = (0..ELEMENTS).map(|i| (i % 1000) as f32).collect();
    let y: Vec<f32> = (0..ELEMENTS).map(|i| (i % 777) as f32).collect();
    let size = size_of_val(x.as_slice()) as u64;
    let (mut device_x, mut device_y) = (device.allocate(size, stream)?, device.allocate(size, stream)?);
    device_x.slice_mut()?.write(&x, stream)?;
    device_y.slice_mut()?.write(&y, stream)?;

    let saxpy = compile(device.backend())?;
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

fn compile(device: &Cuda) -> Result<CudaFunction, Box<dyn Error>> {
    // SAFETY: Loading NVRTC runs only its own initialization code.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("libnvrtc was not found: it comes with the CUDA toolkit and as a separate package".into());
    }
    let module = device.cudarc()?.load_module(nvrtc::compile_ptx(SOURCE)?)?;
    Ok(module.load_function("saxpy")?)
}

fn launch(
    saxpy: &CudaFunction,
    a: f32,
    x: &Buffer<Cuda>,
    y: &mut Buffer<Cuda>,
    stream: Stream<Cuda>,
) -> Result<(), Box<dyn Error>> {
    let (x, mut y) = (CudaView::<f32>::new(x, stream)?, CudaViewMut::<f32>::new(y, stream)?);
    let elements = ELEMENTS as u32;
    let on = y.stream().clone();
    let mut kernel = on.launch_builder(saxpy);
    kernel.arg(&elements).arg(&a).arg(&x).arg(&mut y);
    // SAFETY: The arguments match the kernel, which stays within the buffers.
    unsafe { kernel.launch(LaunchConfig::for_num_elems(elements)) }?;
    Ok(())
}
