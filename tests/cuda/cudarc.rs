//! Sharing memory and streams with cudarc in both directions.
#![allow(unsafe_code)] // launches kernels

use std::sync::Arc;

use accelerator_core::{Accelerator, Buffer, Error, Stream};
use accelerator_cuda::cudarc::driver::{CudaFunction, DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg};
use accelerator_cuda::cudarc::nvrtc::Ptx;
use accelerator_cuda::{Cuda, CudaPtr, CudaView, CudaViewMut, cudarc_stream};
use libtest_mimic::{Failed, Trial};

use crate::rig::{self, Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("cudarc::launch::seed_1", &[("CUDA_SIM_SEED", "1")], launch),
        trial("cudarc::launch::seed_2", &[("CUDA_SIM_SEED", "2")], launch),
        trial("cudarc::copies", &[], copies),
        trial("cudarc::another_stream_is_waited_for", &[], another_stream),
        trial("cudarc::a_view_elsewhere_comes_behind", &[], view_elsewhere),
        trial("cudarc::slices_are_not_freed_under_work::seed_1", &[("CUDA_SIM_SEED", "1")], slices),
        trial("cudarc::slices_are_not_freed_under_work::seed_2", &[("CUDA_SIM_SEED", "2")], slices),
        trial("cudarc::memory_of_cudarc", &[], memory_of_cudarc),
        trial("cudarc::adopted_stream", &[], adopted_stream),
        trial("cudarc::wrong_arguments", &[("CUDA_SIM_DEVICES", "2")], wrong_arguments),
    ]
}

/// The simulated driver knows this kernel by name.
const SCALE: &str = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry scale(.param .u32 n, .param .f32 a, \
                     .param .u64 x)\n{\n    ret;\n}\n";

fn scale(device: &'static Accelerator<Cuda>) -> Result<CudaFunction, Failed> {
    let module = device.backend().cudarc()?.load_module(Ptx::from_src(SCALE))?;
    Ok(module.load_function("scale")?)
}

fn doubled(kernel: &CudaFunction, buffer: &mut Buffer<Cuda>, stream: Stream<Cuda>) -> Outcome {
    let mut x = CudaViewMut::<f32>::new(buffer, stream)?;
    let on = Arc::clone(x.stream());
    let (elements, factor) = (1000_u32, 2.0_f32);
    let mut launch = on.launch_builder(kernel);
    launch.arg(&elements).arg(&factor).arg(&mut x);
    // SAFETY: The arguments match the kernel, and the buffer has that many elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(elements)) }?;
    Ok(())
}

fn launch() -> Outcome {
    let device = device()?;
    let kernel = scale(device)?;
    let (own, other) = (device.stream(0)?, device.stream(0)?);
    for round in 0..20 {
        let start = vec![round as f32; 1000];
        let mut buffer = device.allocate(4000, own)?;
        buffer.slice_mut()?.write(&start, own)?;
        doubled(&kernel, &mut buffer, other)?;
        let event = device.event(accelerator_core::EventFlags::default());
        event.record(other)?;
        event.wait(own)?;
        let result: Vec<f32> = buffer.slice()?.to_vec(own)?;
        assert_eq!(result, vec![2.0 * round as f32; 1000]);

        doubled(&kernel, &mut buffer, other)?;
        drop(buffer); // its memory is not reused on `own` while the kernel runs on it
        device.allocate(4000, own)?.fill(0, own)?;
    }
    drop(kernel);
    check_all_gone(device)
}

fn copies() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(40, stream)?;
    {
        let mut view = CudaViewMut::<u32>::new(&mut buffer, stream)?;
        let on = Arc::clone(view.stream());
        on.memcpy_htod(&[1_u32, 2, 3, 4, 5, 6, 7, 8, 9, 10], &mut view)?;
    }
    let view = CudaView::<u32>::new(&buffer, stream)?;
    assert_eq!(view.stream().clone_dtoh(&view)?, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(view.stream().cu_stream(), stream.native().native());
    Ok(())
}

fn another_stream() -> Outcome {
    let device = device()?;
    let (noted, other) = (device.stream(0)?, device.stream(0)?);
    let mut buffer = device.allocate(1000, noted)?;
    buffer.fill(1, noted)?;
    noted.synchronize()?;
    let view = CudaView::<u8>::new(&buffer, noted)?;
    let elsewhere = cudarc_stream(other)?;
    let waits = rig::calls_of("cuStreamSynchronize");
    drop(view.device_ptr(&elsewhere));
    assert_eq!(rig::calls_of("cuStreamSynchronize"), waits + 1);
    let here = cudarc_stream(noted)?;
    drop(view.device_ptr(&here));
    assert_eq!(rig::calls_of("cuStreamSynchronize"), waits + 1, "the noted stream needs no wait");
    Ok(())
}

fn memory_of_cudarc() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let theirs = cudarc_stream(stream)?.clone_htod(&[9_u8; 100])?;
    let address = theirs.leak();
    let mut read = [0_u8; 100];
    let to = accelerator_core::Place::Host(std::ptr::NonNull::from(&mut read).cast());
    let from = accelerator_core::Place::Device(CudaPtr::from_native(address));
    let len = std::num::NonZeroU64::new(100).unwrap();
    let backend = device.backend();
    // SAFETY: Both are 100 bytes, and the copy is waited for.
    unsafe { accelerator_core::Backend::copy(backend, to, from, len, stream.native()) }?;
    stream.synchronize()?;
    assert_eq!(read, [9; 100]);
    // SAFETY: The slice was leaked here, and nothing uses it.
    drop(unsafe { cudarc_stream(stream)?.upgrade_device_ptr::<u8>(address, 100) });
    Ok(())
}

fn adopted_stream() -> Outcome {
    let device = device()?;
    let theirs = device.backend().cudarc()?.new_stream()?;
    // SAFETY: The stream is never destroyed.
    let native = unsafe { device.backend().adopt(theirs.cu_stream()) };
    // SAFETY: It is a stream of this device.
    let adopted = unsafe { device.external_stream(native) };
    let mut buffer = device.allocate(10, adopted)?;
    buffer.write(0, &[5; 10], adopted)?;
    let view = CudaView::<u8>::new(&buffer, adopted)?;
    assert_eq!(theirs.clone_dtoh(&view)?, [5; 10]);
    drop(buffer);
    std::mem::forget(theirs);
    check_all_gone(device)
}

fn wrong_arguments() -> Outcome {
    let (device, other) = (rig::device_numbered(0)?, rig::device_numbered(1)?);
    let buffer = device.allocate(10, device.default_stream())?;
    let uneven = CudaView::<f32>::new(&buffer, device.default_stream());
    assert!(matches!(uneven, Err(Error::ElementSize { .. })), "{uneven:?}");
    let foreign = CudaView::<u8>::new(&buffer, other.default_stream());
    assert!(matches!(foreign, Err(Error::DeviceMismatch { .. })), "{foreign:?}");
    let empty = device.allocate(0, device.default_stream())?;
    let view = CudaView::<u8>::new(&empty, device.default_stream())?;
    assert!(DeviceSlice::is_empty(&view));
    Ok(())
}

/// Work through a view on another stream runs after the work on the noted stream.
fn view_elsewhere() -> Outcome {
    let device = device()?;
    let (noted, other) = (device.stream(0)?, device.stream(0)?);
    for round in 0..20 {
        let mut buffer = device.allocate(1000, noted)?;
        buffer.fill(round, noted)?;
        let view = CudaView::<u8>::new(&buffer, noted)?;
        assert_eq!(cudarc_stream(other)?.clone_dtoh(&view)?, [round; 1000]);
    }
    check_all_gone(device)
}

/// Safe code drops one of cudarc's own slices while our stream uses it, so cudarc must wait for that work.
fn slices() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    for round in 0..20 {
        let theirs = device.backend().cudarc()?.new_stream()?;
        let slice = theirs.clone_htod(&[round; 1000])?;
        let mut buffer = device.allocate(1000, stream)?;
        let mut view = CudaViewMut::<u8>::new(&mut buffer, stream)?;
        let on = Arc::clone(view.stream());
        on.memcpy_dtod(&slice, &mut view)?;
        drop(slice);
        let mut read = [0; 1000];
        buffer.read(0, &mut read, stream)?;
        assert_eq!(read, [round; 1000]);
    }
    check_all_gone(device)
}
