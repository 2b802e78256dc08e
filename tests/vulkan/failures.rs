//! What is left after a driver's call fails: a typed error with the call's name, and nothing allocated.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use accelerator_core::{
    Backend, CaptureMode, DevicePtr, DriverError, DriverErrorKind, DriverResult, EventFlags, KIB, MIB, Place,
    StreamKind, VirtualMemory,
};
use accelerator_vulkan::ash::vk;
use accelerator_vulkan::{Vulkan, VulkanPtr, VulkanStream};
use libtest_mimic::Trial;

use crate::kernels::code;
use crate::rig::{Outcome, bytes, trial};
use crate::spy::Spied;

const LEN: u64 = 100 * KIB;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("failures::nothing_is_left_when_the_backend_is_dropped", all_goes_well),
        trial("failures::each_call_fails_in_turn", each_call_fails),
        trial("failures::the_device_is_lost_at_each_call_in_turn", each_call_loses_the_device),
        trial("failures::a_lost_device_stays_lost", stays_lost),
        trial("failures::memory_is_there_again_after_a_failure", usable_afterwards),
    ]
}

/// Uses everything of a backend once. `host` has `LEN` bytes.
fn use_all(spied: &Spied, code: &[u8], host: &mut [u8]) -> DriverResult<()> {
    let backend = spied.open(64 * MIB)?;
    let (stream, side) = (backend.stream(StreamKind::Default)?, backend.stream(StreamKind::Side { priority: 0 })?);
    let (start, end) = (backend.event(EventFlags::TIMING)?, backend.event(EventFlags::TIMING)?);
    let memory = backend.alloc(bytes(LEN))?;
    let pinned = backend.alloc_host(bytes(LEN))?;
    let ordinary = Place::Host(NonNull::from(host).cast());
    backend.record(&start, &stream)?;
    // SAFETY: The memory has that many bytes.
    unsafe { backend.fill(memory.offset(1), 3, bytes(LEN - 1), &stream) }?;
    for (to, from) in [
        (Place::Host(pinned), Place::Device(memory)),
        (Place::Device(memory), ordinary),
        (ordinary, Place::Device(memory)),
    ] {
        // SAFETY: Both have that many bytes, and stay alive until the stream is synchronized or the backend dropped.
        unsafe { backend.copy(to, from, bytes(LEN), &stream) }?;
    }
    backend.record(&end, &stream)?;
    backend.wait(&side, &end)?;
    // SAFETY: The code is valid, and the shader has these buffers and values.
    let kernel = unsafe { backend.kernel(code, c"main", 2, 8) }?;
    let halves = [(memory, LEN / 2), (memory.offset(LEN / 2), LEN / 2)];
    // SAFETY: With 0 elements, it touches nothing.
    unsafe { kernel.launch_native(&side, [1, 1, 1], &halves, &[0; 8]) }?;
    let graphs = backend.graphs().unwrap();
    graphs.begin(&stream, CaptureMode::default())?;
    // SAFETY: As above.
    unsafe { kernel.launch_native(&stream, [1, 1, 1], &halves, &[0; 8]) }?;
    // SAFETY: The memory has that many bytes.
    unsafe { backend.fill(memory.offset(1), 3, bytes(LEN - 1), &stream) }?;
    let graph = graphs.end(&stream)?;
    for launched in [&stream, &side] {
        // SAFETY: As above.
        unsafe { graph.launch(launched) }?;
    }
    backend.synchronize(&side)?;
    backend.wait_host(&end)?;
    assert_eq!((backend.is_complete(&end), backend.is_idle(&side)), (Ok(true), Ok(true)));
    assert!(backend.elapsed_ns(&start, &end)? >= 0);
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(memory, bytes(LEN)) };
    // SAFETY: As above, and its work is done.
    unsafe { backend.dealloc_host(pinned, bytes(LEN)) };
    backend.virtual_memory().map_or(Ok(()), |memory| use_mapped(&backend, memory, &stream))
}

fn use_mapped(backend: &Vulkan, memory: &dyn VirtualMemory<VulkanPtr>, stream: &VulkanStream) -> DriverResult<()> {
    let page = memory.granularity();
    let at = memory.reserve(page)?;
    let pages = memory.create(page)?;
    // SAFETY: Nothing is mapped in the reservation, which is as long.
    unsafe { memory.map(at, &pages) }?;
    // SAFETY: The memory is mapped, and has that many bytes.
    unsafe { backend.fill(at, 3, page, stream) }?;
    backend.synchronize(stream)?;
    // SAFETY: It is one whole mapping, and its work is done.
    unsafe { memory.unmap(at, page) }?;
    // SAFETY: It is mapped nowhere.
    unsafe { memory.destroy(pages) };
    // SAFETY: Nothing is mapped there.
    unsafe { memory.release(at, page) };
    Ok(())
}

fn all_goes_well() -> Outcome {
    let spied = Spied::new()?;
    use_all(&spied, &code()?, &mut vec![1; LEN as usize])?;
    assert_eq!(spied.left(), []);
    // What the program leaves goes with the backend.
    let backend = spied.open(64 * MIB)?;
    let stream = backend.stream(StreamKind::Default)?;
    let left = (backend.alloc(bytes(LEN))?, backend.alloc_host(bytes(LEN))?);
    // SAFETY: Both have that many bytes.
    unsafe { backend.copy(Place::Device(left.0), Place::Host(left.1), bytes(LEN), &stream) }?;
    assert!(spied.live("vkAllocateMemory") >= 2);
    drop(backend);
    drop(stream);
    assert_eq!(spied.left(), []);
    Ok(())
}

/// Makes the calls of `use_all` fail one after the other. Returns how many failed.
fn in_turn(result: vk::Result, kind: DriverErrorKind, name: &str) -> Result<u64, libtest_mimic::Failed> {
    let (code, mut host) = (code()?, vec![1; LEN as usize]);
    for number in 1.. {
        let spied = Spied::new()?;
        spied.fail(number, result);
        let outcome = use_all(&spied, &code, &mut host);
        let Some(call) = spied.failed() else {
            outcome?;
            return Ok(number - 1);
        };
        // Some calls are made again, or their failure does not matter.
        if let Err(error) = outcome {
            let expected = DriverError::new(kind, call, result.as_raw().into(), error.name);
            assert_eq!((error, error.name), (expected, name), "call {number}");
        }
        assert_eq!(spied.left(), [], "after {call}, call {number}");
    }
    Err("there is no end".into())
}

fn each_call_fails() -> Outcome {
    for (result, name) in [
        (vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        (vk::Result::ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"),
    ] {
        let calls = in_turn(result, DriverErrorKind::OutOfMemory, name)?;
        assert!(calls > 50, "{calls} calls");
    }
    in_turn(vk::Result::ERROR_UNKNOWN, DriverErrorKind::Other, "VK_ERROR_UNKNOWN").map(drop)
}

fn each_call_loses_the_device() -> Outcome {
    let calls = in_turn(vk::Result::ERROR_DEVICE_LOST, DriverErrorKind::DeviceLost, "VK_ERROR_DEVICE_LOST")?;
    assert!(calls > 50, "{calls} calls");
    Ok(())
}

fn stays_lost() -> Outcome {
    let spied = Spied::new()?;
    let backend: Vulkan = spied.open(64 * MIB)?;
    let stream = backend.stream(StreamKind::Default)?;
    let (event, timed) = (backend.event(EventFlags::default())?, backend.event(EventFlags::TIMING)?);
    let memory = backend.alloc(bytes(LEN))?;
    backend.record(&timed, &stream)?;
    spied.fail(2, vk::Result::ERROR_DEVICE_LOST);
    // SAFETY: The memory has that many bytes.
    let lost = (0..10).find_map(|_| unsafe { backend.fill(memory, 1, bytes(LEN), &stream) }.err()).unwrap();
    let call = spied.failed().unwrap();
    assert_eq!(lost, DriverError::new(DriverErrorKind::DeviceLost, call, -4, "VK_ERROR_DEVICE_LOST"));
    // Every call returns the same error, and makes no call of the driver.
    // SAFETY: As above.
    assert_eq!(unsafe { backend.fill(memory, 1, bytes(LEN), &stream) }, Err(lost));
    assert_eq!(backend.record(&event, &stream), Err(lost));
    assert_eq!(backend.wait(&stream, &timed), Err(lost));
    assert_eq!(backend.synchronize(&stream), Err(lost));
    assert_eq!(backend.wait_host(&timed), Err(lost));
    assert_eq!(backend.is_idle(&stream), Err(lost));
    assert_eq!(backend.alloc(bytes(LEN)).err(), Some(lost));
    assert_eq!(backend.alloc_host(bytes(LEN)).err(), Some(lost));
    assert_eq!(backend.memory_info().err(), Some(lost));
    assert_eq!(backend.elapsed_ns(&timed, &timed).err(), Some(lost));
    assert!(backend.stream(StreamKind::Default).is_err() && backend.event(EventFlags::default()).is_err());
    // No work runs any more.
    assert_eq!((backend.is_complete(&event), backend.is_complete(&timed)), (Ok(true), Ok(true)));
    let before = spied.live("vkAllocateMemory");
    // SAFETY: It was allocated with this length.
    unsafe { backend.dealloc(memory, bytes(LEN)) };
    assert_eq!(spied.live("vkAllocateMemory"), before - 1);
    drop((event, timed, stream, backend));
    assert_eq!(spied.left(), []);
    Ok(())
}

fn usable_afterwards() -> Outcome {
    let spied = Spied::new()?;
    let backend = spied.open(64 * MIB)?;
    for call in 1..=3 {
        let before = (spied.left(), backend.memory_info()?);
        // `vkCreateBuffer`, `vkAllocateMemory`, `vkBindBufferMemory`.
        spied.fail(call, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        let error = backend.alloc(bytes(64 * MIB)).unwrap_err();
        assert_eq!((error.kind, Some(error.call)), (DriverErrorKind::OutOfMemory, spied.failed()));
        assert_eq!((spied.left(), backend.memory_info()?), before);
        let all = backend.alloc(bytes(64 * MIB))?;
        // SAFETY: It was allocated with this length.
        unsafe { backend.dealloc(all, bytes(64 * MIB)) };
    }
    Ok(())
}
