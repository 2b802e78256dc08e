//! Memory released to the driver while work on it is waiting.

use accelerator_core::{Accelerator, Buffer, DevicePtr, MIB, Stream};
use accelerator_opencl::{KernelArgument, OpenCl};
use libtest_mimic::{Failed, Trial};

use crate::kernels::Kernel;
use crate::rig::{Outcome, UserEvent, check_all_gone, check_busy, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("release::memory_of_waiting_copies", copies),
        trial("release::memory_of_waiting_kernels", kernels),
        trial("release::with_caching_off", uncached),
    ]
}

const LEN: u64 = 30 * MIB;

/// Allocates the released amount of memory several times, and writes all of it.
fn overwrite(device: &'static Accelerator<OpenCl>, other: Stream<OpenCl>) -> Result<Vec<Buffer<OpenCl>>, Failed> {
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut buffer = device.allocate(LEN, other)?;
        buffer.fill(0xEE, other)?;
        others.push(buffer);
    }
    other.synchronize()?;
    Ok(others)
}

fn reserved(device: &'static Accelerator<OpenCl>) -> i64 {
    device.allocator().statistics().reserved_bytes.all.current
}

fn copies() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let mut source = device.allocate(LEN, stream)?;
    let mut target = device.allocate(LEN, stream)?;
    source.fill(1, stream)?;
    target.fill(2, stream)?;
    stream.synchronize()?;

    let held = UserEvent::hold(stream)?;
    source.fill(3, stream)?;
    target.copy_from(&source, stream)?;
    drop(source);
    device.allocator().empty_cache()?;
    assert_eq!(reserved(device), LEN as i64, "the segment was released");
    check_busy(stream)?; // its work is still waiting
    let others = overwrite(device, other)?;
    held.let_go()?;

    assert!(target.slice::<u8>()?.to_vec(stream)? == vec![3; LEN as usize]);
    for buffer in others {
        assert!(buffer.slice::<u8>()?.to_vec(other)? == vec![0xEE; LEN as usize]);
    }
    drop(target);
    check_all_gone(device)
}

fn kernels() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let copy = Kernel::new(
        device,
        c"copy",
        "kernel void copy(global uint* to, global const uint* from) {
            size_t i = get_global_id(0);
            to[i] = from[i] + 1;
        }",
    )?;
    // Two sub-buffers of one segment, in which one block stays live, and a separate segment.
    let (first, source) = (device.allocate(2 * MIB, stream)?, device.allocate(3 * MIB, stream)?);
    let mut large = device.allocate(LEN, stream)?;
    let target = device.allocate(LEN, stream)?;
    large.fill(4, stream)?;

    let held = UserEvent::hold(stream)?;
    let elements = LEN as usize / 4;
    let arguments = (KernelArgument::new(&target, stream)?, KernelArgument::new(&large, stream)?);
    copy.launch(&[arguments.0.native(), arguments.1.native()], elements, stream)?;
    let arguments = (KernelArgument::new(&source, stream)?, KernelArgument::new(&target, stream)?);
    copy.launch(&[arguments.0.native(), arguments.1.native()], 1_000, stream)?;
    let at = source.ptr().unwrap();
    drop(arguments);
    drop((large, source));
    device.allocator().empty_cache()?;
    assert_eq!(reserved(device), (LEN + 20 * MIB) as i64);
    let others = overwrite(device, other)?;
    held.let_go()?;

    assert!(target.slice::<u32>()?.to_vec(stream)? == vec![0x0404_0405; elements]);
    // The second kernel's output is where its buffer was.
    let again = device.allocate(3 * MIB, stream)?;
    assert_eq!(again.ptr().map(DevicePtr::trace_address), Some(at.trace_address()));
    let mut found = vec![0; 4_000];
    again.read(0, &mut found, stream)?;
    assert!(found == 0x0404_0406_u32.to_ne_bytes().repeat(1_000));
    drop((first, again, target, others));
    check_all_gone(device)
}

fn uncached() -> Outcome {
    let device = device()?;
    let config = device.allocator().config().updated("caching:False")?;
    device.allocator().set_config(config);
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let mut target = device.allocate(LEN, stream)?;
    let held = UserEvent::hold(stream)?;
    for value in 0..10 {
        let mut source = device.allocate(LEN, stream)?;
        source.fill(value, stream)?;
        target.copy_from(&source, stream)?;
    }
    assert_eq!(reserved(device), LEN as i64, "each was released immediately");
    let others = overwrite(device, other)?;
    held.let_go()?;
    assert!(target.slice::<u8>()?.to_vec(stream)? == vec![9; LEN as usize]);
    drop((target, others));
    check_all_gone(device)
}
