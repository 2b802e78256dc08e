//! Access of one device to the memory of others.
#![allow(unsafe_code)] // launches kernels

use accelerator_core::{AllocatorConfig, Buffer};
use accelerator_cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
use accelerator_cuda::cudarc::nvrtc::Ptx;
use accelerator_cuda::{Cuda, CudaViewMut};
use libtest_mimic::Trial;

use crate::rig::{self, Device, Outcome, check_all_gone, device_numbered, give_back, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("reach::kernels", &[("CUDA_SIM_DEVICES", "2")], kernels),
        trial("reach::kernels_and_mapped_memory", &[("CUDA_SIM_DEVICES", "2")], kernels_and_mapped_memory),
        trial("reach::copies_are_direct", &[("CUDA_SIM_DEVICES", "2")], direct_copies),
        trial("reach::too_many_peers", &[("CUDA_SIM_DEVICES", "4"), ("CUDA_SIM_PEERS", "1")], too_many_peers),
    ]
}

/// The simulated driver knows this kernel by name: y = a x + y.
const SAXPY: &str = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry saxpy(.param .u32 n, \
                     .param .f32 a, .param .u64 x, .param .u64 y)\n{\n    ret;\n}\n";

fn of(device: Device, elements: &[f32]) -> Buffer<Cuda> {
    let stream = device.default_stream();
    let mut buffer = device.allocate(4 * elements.len() as u64, stream).unwrap();
    buffer.slice_mut().unwrap().write(elements, stream).unwrap();
    stream.synchronize().unwrap();
    buffer
}

/// A kernel reads memory of the other device, which without peer access is an illegal address.
fn kernels() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    let x = of(there, &[4.0; 100]);
    assert!(here.backend().enable_peer_access(there.backend())?);
    kernel_reads(here, &x)?;
    drop(x);
    give_back(here)?;
    check_all_gone(there)
}

/// The same for memory in virtual memory, from before peer access and from after it.
fn kernels_and_mapped_memory() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    for settings in ["expandable_segments:True", "policy:compact"] {
        there.allocator().set_config(AllocatorConfig::default().updated(settings)?);
        let before = of(there, &[4.0; 100]);
        assert!(here.backend().enable_peer_access(there.backend())?);
        let after = of(there, &vec![4.0; 10_000_000]);
        kernel_reads(here, &before)?;
        kernel_reads(here, &after)?;
    }
    give_back(here)?;
    check_all_gone(there)
}

fn kernel_reads(here: Device, x: &Buffer<Cuda>) -> Outcome {
    let kernel = here.backend().cudarc()?.load_module(Ptx::from_src(SAXPY))?.load_function("saxpy")?;
    let mut y = of(here, &[1.0; 100]);
    let (elements, factor, far) = (100_u32, 2.0_f32, x.ptr().unwrap().native());
    let mut near = CudaViewMut::<f32>::new(&mut y, here.default_stream())?;
    let on = near.stream().clone();
    let mut launch = on.launch_builder(&kernel);
    launch.arg(&elements).arg(&factor).arg(&far).arg(&mut near);
    // SAFETY: The arguments match the kernel, and the buffers have that many elements and outlive it.
    unsafe { launch.launch(LaunchConfig::for_num_elems(elements)) }?;
    let result: Vec<f32> = y.slice()?.to_vec(here.default_stream())?;
    assert_eq!(result, [9.0; 100]);
    Ok(())
}

fn copied(to: Device, from: Device, value: f32) -> Outcome {
    let (source, mut destination) = (of(from, &[value; 100]), of(to, &[0.0; 100]));
    destination.copy_from(&source, to.default_stream())?;
    let read: Vec<f32> = destination.slice()?.to_vec(to.default_stream())?;
    assert_eq!(read, [value; 100]);
    Ok(())
}

/// Copies are direct in both directions without an explicit request.
fn direct_copies() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    copied(here, there, 1.0)?;
    copied(there, here, 2.0)?;
    assert_eq!((rig::calls_of("cuMemcpyPeerAsync"), rig::staged_copies()), (2, 0));
    give_back(here)?;
    check_all_gone(there)
}

/// Beyond the maximum number of peers, copies still work through the host, and the others stay direct.
fn too_many_peers() -> Outcome {
    let [here, first, second, third] = [0, 1, 2, 3].map(|ordinal| device_numbered(ordinal).unwrap());
    assert!(here.backend().enable_peer_access(first.backend())?);
    assert!(!here.backend().enable_peer_access(second.backend())?);
    copied(here, first, 1.0)?;
    assert_eq!(rig::staged_copies(), 0);
    copied(here, second, 2.0)?;
    copied(here, third, 3.0)?;
    assert_eq!((rig::calls_of("cuMemcpyPeerAsync"), rig::staged_copies()), (3, 2));
    for device in [here, first, second] {
        give_back(device)?;
    }
    check_all_gone(third)
}
