//! Copies in, computes and copies out on three streams at once, chunk by chunk, and checks every element.
//!
//! No call here records which stream uses which memory: each chunk's buffer is dropped as soon as its work is
//! submitted, and its memory is reused once that work is done. The host waits only for the results.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use accelerator_core::{Accelerator, Bytes, PinnedBuffer};
use accelerator_cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
use accelerator_cuda::cudarc::nvrtc::Ptx;
use accelerator_cuda::{Cuda, CudaViewMut};

/// `if (i < n) x[i] *= a;` as PTX, which the driver compiles for any device, so no compiler is needed.
const SCALE: &str = "
.version 6.4
.target sm_52
.address_size 64

.visible .entry scale(.param .u32 n, .param .f32 a, .param .u64 x)
{
    .reg .pred %p;
    .reg .b32 %i, %size, %index, %n;
    .reg .f32 %a, %value;
    .reg .b64 %x, %offset;

    mov.u32 %i, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.u32 %i, %i, %size, %index;
    ld.param.u32 %n, [n];
    setp.ge.u32 %p, %i, %n;
    @%p ret;

    ld.param.u64 %x, [x];
    cvta.to.global.u64 %x, %x;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %x, %x, %offset;
    ld.param.f32 %a, [a];
    ld.global.f32 %value, [%x];
    mul.f32 %value, %value, %a;
    st.global.f32 [%x], %value;
    ret;
}
";
const CHUNKS: usize = 16;
/// The number of elements of one chunk.
const ELEMENTS: usize = 1 << 18;
const CHUNK: u64 = (ELEMENTS * size_of::<f32>()) as u64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipeline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let device = Accelerator::<Cuda>::open(0)?;
    println!("{} is {} ({})", device.device(), device.properties().name, device.properties().driver);
    let (copy_in, compute, copy_out) = (device.stream(0)?, device.stream(0)?, device.stream(0)?);
    let scale = device.backend().cudarc()?.load_module(Ptx::from_src(SCALE))?.load_function("scale")?;

    let mut inputs = Vec::new();
    for chunk in 0..CHUNKS {
        let mut input = device.allocate_host(CHUNK)?;
        input.slice_mut::<f32>()?.iter_mut().zip(elements(chunk)).for_each(|(at, element)| *at = element);
        inputs.push(input);
    }

    let mut outputs: Vec<PinnedBuffer<Cuda>> = Vec::new();
    for input in inputs {
        let mut buffer = device.allocate(CHUNK, copy_in)?;
        buffer.copy_from_pinned(0, &input, 0..CHUNK, copy_in)?;

        compute.wait_stream(copy_in)?;
        let mut x = CudaViewMut::<f32>::new(&mut buffer, compute)?;
        let on = Arc::clone(x.stream());
        let (count, factor) = (ELEMENTS as u32, 2.0_f32);
        let mut kernel = on.launch_builder(&scale);
        kernel.arg(&count).arg(&factor).arg(&mut x);
        // SAFETY: The arguments match the kernel, which stays within the buffer.
        unsafe { kernel.launch(LaunchConfig::for_num_elems(count)) }?;

        copy_out.wait_stream(compute)?;
        let mut output = device.allocate_host(CHUNK)?;
        buffer.copy_to_pinned(0..CHUNK, &mut output, 0, copy_out)?;
        outputs.push(output);
        // `buffer` and `input` are dropped here, while their work is still pending.
    }

    for (chunk, output) in outputs.iter().enumerate() {
        let right = output.slice::<f32>()?.iter().zip(elements(chunk)).all(|(got, put)| *got == 2.0 * put);
        if !right {
            return Err(format!("chunk {chunk} differs from the host's").into());
        }
    }
    let peak = device.allocator().statistics().reserved_bytes.all.peak as u64;
    println!("{CHUNKS} chunks of {} equal the host's; the device's memory was {} at most", Bytes(CHUNK), Bytes(peak));
    Ok(())
}

/// Returns the input of a chunk: whole numbers, so that doubling them is exact.
fn elements(chunk: usize) -> impl Iterator<Item = f32> {
    (0..ELEMENTS).map(move |index| ((index + chunk) % 1000) as f32)
}
