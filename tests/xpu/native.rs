//! Using other libraries' handles, and passing ours to other libraries.
#![allow(unsafe_code)]

use std::ptr;

use accelerator_core::{Backend, Buffer, EventFlags, Stream, StreamKind};
use accelerator_xpu::{Argument, Xpu, sys};
use libtest_mimic::{Failed, Trial};

use crate::control;
use crate::raw::{self, ze};
use crate::rig::{Device, Outcome, check_all_gone, device, simulated};
use crate::whole;

/// The example's kernel, which the simulated driver knows by name: y = a x + y.
pub(crate) const SPIRV: &[u8] = include_bytes!("../../backends/xpu/examples/saxpy.spv");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("native::handles", &[], handles),
        simulated("native::a_list_that_its_owner_uses_too", &[], shared_list),
        simulated("native::events_on_a_list_that_its_owner_uses_too", &[], events_on_shared_list),
        simulated("native::memory_that_an_adopted_list_uses", &[], memory_of_shared_list),
        simulated("native::commands_of_ones_own", &[], own_commands),
        simulated("native::kernels", &[], kernels),
        simulated("native::a_kernel_waits_for_its_launches", &[], dropped_kernel),
        simulated("native::a_module_that_is_none", &[], no_module),
        simulated("native::nothing_is_left", LEAKS_ARE_TOLD, nothing_left),
    ]
}

const LEAKS_ARE_TOLD: &[(&str, &str)] = &[("ZEL_ENABLE_BASIC_LEAK_CHECKER", "1"), ("ZE_SIM_DEVICES", "2")];

fn floats(device: Device, value: f32, count: usize) -> Result<Buffer<Xpu>, Failed> {
    let stream = device.default_stream();
    let mut buffer = device.allocate(4 * count as u64, stream)?;
    buffer.slice_mut()?.write(&vec![value; count], stream)?;
    stream.synchronize()?;
    Ok(buffer)
}

fn all_of(buffer: &Buffer<Xpu>, stream: Stream<Xpu>) -> Vec<u8> {
    let mut read = vec![0; buffer.len() as usize];
    buffer.read(0, &mut read, stream).unwrap();
    read
}

/// To the driver, the backend's memory belongs to its context and is on the device.
fn handles() -> Outcome {
    let device = device()?;
    let buffer = device.allocate(3000, device.default_stream())?;
    let (at, (driver, raw, context)) = (buffer.ptr().ok_or("no memory")?.native(), device.backend().native());
    let mut properties = sys::ze_memory_allocation_properties_t::default();
    let mut on = ptr::null_mut();
    ze!(device.backend(), zeMemGetAllocProperties(context, at, &mut properties, &mut on))?;
    assert_eq!((properties.type_, on), (sys::ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE, raw));
    let (mut count, mut first) = (1, ptr::null_mut());
    ze!(device.backend(), zeDeviceGet(driver, &mut count, &mut first))?;
    assert_eq!(first, raw);
    let pinned = device.allocate_host(1000)?;
    let at = pinned.ptr().ok_or("no memory")?.as_ptr().cast();
    ze!(device.backend(), zeMemGetAllocProperties(context, at, &mut properties, &mut on))?;
    assert_eq!(properties.type_, sys::ze_memory_type_t::ZE_MEMORY_TYPE_HOST);
    drop((buffer, pinned));
    check_all_gone(device)
}

/// Adopts the list as a stream. Its owner continues to use it.
fn adopted(device: Device, list: sys::ze_command_list_handle_t) -> Result<Stream<Xpu>, Failed> {
    // SAFETY: Trials keep the list alive, and append commands only on this thread.
    let stream = unsafe { device.backend().adopt(list) }?;
    // SAFETY: It is a stream of this backend.
    Ok(unsafe { device.external_stream(stream) })
}

/// The owner's commands and ours alternate. Each sees what the previous one left.
fn shared_list() -> Outcome {
    let device = device()?;
    let list = raw::list(device.backend())?;
    let stream = adopted(device, list)?;
    let (mut buffer, mut copy) = (device.allocate(64, stream)?, device.allocate(64, stream)?);
    let at = buffer.ptr().ok_or("no memory")?.native();
    for seed in 0..100 {
        control::seed(seed);
        buffer.fill(1, stream)?;
        raw::fill(device.backend(), list, at, 2, 64)?;
        copy.copy_from(&buffer, stream)?;
        raw::fill(device.backend(), list, at, 3, 64)?;
        assert_eq!(all_of(&copy, stream), [2; 64], "seed {seed}");
        assert_eq!(all_of(&buffer, stream), [3; 64], "seed {seed}");
    }
    drop((buffer, copy));
    check_all_gone(device)
}

/// An event recorded there comes after what the owner submitted, and the stream is not idle before that is done.
fn events_on_shared_list() -> Outcome {
    let device = device()?;
    let list = raw::list(device.backend())?;
    let stream = adopted(device, list)?;
    let other = device.stream(0)?;
    let (buffer, mut copy) = (device.allocate(64, stream)?, device.allocate(64, other)?);
    let at = buffer.ptr().ok_or("no memory")?.native();
    let event = device.event(EventFlags::default());
    for value in 0..50_u8 {
        control::seed(value.into());
        control::hold(list);
        raw::fill(device.backend(), list, at, value, 64)?;
        event.record(stream)?;
        assert!(!event.is_complete()? && !stream.is_idle()?, "the list is held");
        event.wait(other)?;
        copy.copy_from(&buffer, other)?;
        raw::fill(device.backend(), list, at, 0xee, 64)?;
        control::release(list);
        stream.wait_stream(other)?;
        let seen = all_of(&copy, other)[0];
        assert!(seen == value || seen == 0xee, "{seen}: the owner's later work may run first");
        stream.synchronize()?;
        assert!(stream.is_idle()? && event.is_complete()?);
    }
    drop((buffer, copy));
    check_all_gone(device)
}

/// The owner's work on the list is waited for before memory is freed.
fn memory_of_shared_list() -> Outcome {
    let device = Xpu::open(0)?;
    let list = raw::list(&device)?;
    // SAFETY: The list is destroyed later.
    let stream = unsafe { device.adopt(list) }?;
    let len = std::num::NonZeroU64::new(1000).ok_or("no length")?;
    for _ in 0..20 {
        let at = device.alloc(len)?;
        control::hold(list);
        raw::fill(&device, list, at.native(), 1, 1000)?;
        // SAFETY: Just allocated, and the work that uses it was submitted earlier.
        unsafe { device.dealloc(at, len) };
        assert_eq!(control::live_allocations(), 0);
    }
    drop(stream);
    ze!(device, zeCommandListDestroy(list))?;
    Ok(())
}

/// Commands passed to `submit` run after earlier work and before later work.
fn own_commands() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let (mut buffer, mut copy) = (device.allocate(64, stream)?, device.allocate(64, stream)?);
    let at = buffer.ptr().ok_or("no memory")?.native();
    for seed in 0..100 {
        control::seed(seed);
        buffer.fill(1, stream)?;
        stream.native().submit(|list| {
            let (value, none) = (2_u8, ptr::null_mut());
            let value = (&raw const value).cast();
            ze!(device.backend(), zeCommandListAppendMemoryFill(list, at, value, 1, 64, none, 0, ptr::null_mut()))
        })?;
        copy.copy_from(&buffer, stream)?;
        buffer.fill(3, stream)?;
        assert_eq!(all_of(&copy, stream), [2; 64], "seed {seed}");
    }
    drop((buffer, copy));
    check_all_gone(device)
}

/// A kernel runs after earlier writes to its arguments and before later ones.
fn kernels() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let (x, mut y) = (floats(device, 4.0, 1000)?, floats(device, 1.0, 1000)?);
    // SAFETY: The example's kernel, which is valid.
    let mut kernel = unsafe { device.backend().module(SPIRV, c"") }?.kernel(c"saxpy")?;
    for seed in 0..50 {
        control::seed(seed);
        y.fill(0, stream)?;
        let (n, a) = (1000_u32, 2.0_f32);
        let arguments = [Argument::value(&n), Argument::value(&a), Argument::Buffer(&x), Argument::Buffer(&y)];
        for _ in 0..3 {
            // SAFETY: The arguments match the kernel, and the buffers have that many elements.
            unsafe { kernel.launch(stream, [4, 1, 1], [256, 1, 1], &arguments) }?;
        }
        assert_eq!(y.slice::<f32>()?.to_vec(stream)?, vec![24.0; 1000], "seed {seed}");
    }
    drop((x, y, kernel));
    assert_eq!((control::live_modules(), control::live_kernels()), (0, 0));
    check_all_gone(device)
}

/// The kernel and its buffers may be dropped. The launch recorded their use.
fn dropped_kernel() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    for _ in 0..10 {
        let (x, y) = (floats(device, 4.0, 100)?, floats(device, 1.0, 100)?);
        // SAFETY: The example's kernel, which is valid.
        let mut kernel = unsafe { device.backend().module(SPIRV, c"") }?.kernel(c"saxpy")?;
        let (n, a) = (100_u32, 2.0_f32);
        let arguments = [Argument::value(&n), Argument::value(&a), Argument::Buffer(&x), Argument::Buffer(&y)];
        control::hold(stream.native().native());
        // SAFETY: The arguments match the kernel, and the buffers have that many elements.
        unsafe { kernel.launch(stream, [1, 1, 1], [128, 1, 1], &arguments) }?;
        let taken = [x.ptr(), y.ptr()];
        drop((x, y));
        let again = device.allocate(400, device.default_stream())?;
        assert!(!taken.contains(&again.ptr()), "the launch is still under way");
        drop(kernel);
        assert!(stream.is_idle()?);
    }
    control::release(stream.native().native());
    check_all_gone(device)
}

/// The compiler's message is passed on.
fn no_module() -> Outcome {
    let device = device()?;
    // SAFETY: The simulated compiler refuses anything but SPIR-V.
    let error = unsafe { device.backend().module(b"no module", c"") }.unwrap_err();
    assert_eq!(error.source.call, "zeModuleCreate");
    assert!(error.to_string().contains("magic number"), "{error}");
    assert_eq!(format!("{error:?}"), error.to_string(), "what `main` prints");
    // SAFETY: The example's kernel, which is valid.
    let module = unsafe { device.backend().module(SPIRV, c"") }?;
    let error = module.kernel(c"no_such").unwrap_err();
    assert_eq!((error.call, error.name), ("zeKernelCreate", "ZE_RESULT_ERROR_INVALID_KERNEL_NAME"));
    drop(module);
    assert_eq!((control::live_modules(), control::live_kernels()), (0, 0));
    Ok(())
}

/// Opens and drops the backend repeatedly, using everything each time. Newer loaders also count leaks and print them
/// when the process ends.
fn nothing_left() -> Outcome {
    for _ in 0..3 {
        whole::everything()?;
        assert_eq!(control::live(), []);
    }
    // Drops two backends in either order, one of them while the other is working.
    let (first, second) = (Xpu::open(0)?, Xpu::open(1)?);
    let stream = second.stream(StreamKind::Default)?;
    drop(first);
    assert_eq!(control::live_contexts(), 1);
    second.synchronize(&stream)?;
    drop(second);
    assert_eq!(control::live_lists(), 1, "the stream lives on");
    drop(stream);
    assert_eq!(control::live(), []);
    Ok(())
}
