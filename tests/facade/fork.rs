//! A forked child has neither the device's threads nor its memory.
#![allow(unsafe_code)] // `fork`

use std::num::NonZeroU64;

use accelerator::core::{Accelerator, EventFlags};
use accelerator::host::{Host, launch};
use accelerator::{AllocatorConfig, Backend, MIB};

use crate::process::{SETTINGS, device, processes};

/// Returns the wait status of a forked child that runs `child` and exits with its result.
fn forked(child: impl FnOnce() -> i32) -> libc::c_int {
    // SAFETY: The child allocates, prints and exits. The parent's other threads only wait for this one or for work.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: Terminates the child if it hangs.
        unsafe { libc::alarm(20) };
        let code = child();
        // SAFETY: Exits the child without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: The call writes a number.
    unsafe { libc::waitpid(process, &mut status, 0) };
    status
}

processes! { on_host:
    fn calls_in_a_forked_child_fail_and_do_not_hang() {
        for settings in SETTINGS {
            let device = device(settings);
            let (stream, other) = (device.default_stream(), device.stream(0).unwrap());
            let mut buffer = device.allocate(MIB, stream).unwrap();
            let mut pinned = device.allocate_host(MIB).unwrap();
            buffer.fill(7, stream).unwrap();
            buffer.copy_to_pinned(0..10, &mut pinned, 0, stream).unwrap();
            let event = device.event(EventFlags::TIMING);
            event.record(stream).unwrap();
            let status = forked(|| {
                let told = |error: accelerator::Error| error.to_string();
                let answers = [
                    device.synchronize().map_err(told),
                    stream.is_idle().map(drop).map_err(told),
                    stream.wait_event(&event).map_err(told),
                    buffer.fill(1, stream).map_err(told),
                    buffer.write(0, &[1], other).map_err(told),
                    buffer.read(0, &mut [0; 4], stream).map_err(told),
                    launch(stream, buffer.slice_mut::<u8>().unwrap(), |bytes| bytes.fill(9)).map_err(told),
                    buffer.copy_to_pinned(0..10, &mut pinned, 0, stream).map_err(told),
                    pinned.bytes().map(drop).map_err(told),
                    event.record(stream).map_err(told),
                    event.synchronize().map_err(told),
                    device.memory_info().map(drop).map_err(told),
                    device.dedicated_stream(0).map(drop).map_err(told),
                    device.allocate(64 * MIB, stream).map(drop).map_err(told),
                    // An allocation from the cache makes no call, but its first use does.
                    device.allocate(512, stream).and_then(|mut cached| cached.fill(1, stream)).map_err(told),
                ];
                drop((buffer, pinned, event));
                let clear = |answer: &&Result<(), String>| {
                    !answer.as_ref().is_err_and(|text| text.contains("forked") && text.contains("after the fork"))
                };
                answers.iter().filter(clear).inspect(|answer| eprintln!("{answer:?}")).count() as i32
            });
            assert_eq!(status, 0, "with `{settings}`: signal {}, code {}", status & 127, status >> 8);
        }
    }

    // Whatever the child does to its copy of the allocator affects neither the parent's file nor its memory.
    fn a_forked_child_gives_none_of_its_parents_memory_back() {
        for settings in SETTINGS {
            let device = device(settings);
            let stream = device.default_stream();
            let mut buffer = Some(device.allocate(48 * MIB, stream).unwrap());
            buffer.iter_mut().for_each(|buffer| buffer.fill(7, stream).unwrap());
            device.synchronize().unwrap();
            let status = forked(|| {
                drop(buffer.take()); // the child's copy
                let _ = device.allocator().empty_cache();
                0
            });
            assert_eq!(status, 0, "with `{settings}`");
            let mut bytes = vec![0; 48 << 20];
            buffer.unwrap().read(0, &mut bytes, stream).unwrap();
            assert!(bytes == vec![7; bytes.len()], "with `{settings}`");
        }
    }

    fn a_forked_child_cannot_write_into_its_parents_memory() {
        for settings in SETTINGS {
            let device = device(settings);
            let stream = device.default_stream();
            let mut buffer = device.allocate(MIB, stream).unwrap();
            buffer.fill(7, stream).unwrap();
            stream.synchronize().unwrap();
            let at = buffer.ptr().unwrap().as_ptr();
            let status = forked(|| {
                // SAFETY: There is no memory here, which is what terminates the child.
                unsafe { at.write_bytes(9, 16) };
                0
            });
            assert_eq!(status & 127, libc::SIGSEGV, "with `{settings}`");
            let mut bytes = [0; 16];
            buffer.read(0, &mut bytes, stream).unwrap();
            assert_eq!(bytes, [7; 16], "with `{settings}`");
        }
    }

    fn a_forked_child_has_copies_of_inherited_memory() {
        for settings in SETTINGS {
            let config = AllocatorConfig::default().updated(settings).unwrap();
            let device = Accelerator::new(Host::open_inherited(0).unwrap(), 0, config).unwrap();
            let stream = device.default_stream();
            let mut buffer = device.allocate(5 * MIB, stream).unwrap();
            buffer.fill(7, stream).unwrap();
            stream.synchronize().unwrap();
            let at = buffer.ptr().unwrap().as_ptr();
            let status = forked(|| {
                // SAFETY: The child has copies of the parent's bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(at, 5 << 20) };
                let are_there = bytes.iter().all(|byte| *byte == 7);
                bytes.fill(9);
                let fails = device.synchronize().is_err();
                drop(buffer);
                i32::from(!are_there || !fails)
            });
            assert_eq!(status, 0, "with `{settings}`: signal {}, code {}", status & 127, status >> 8);
            // SAFETY: No work writes these bytes.
            assert_eq!(unsafe { at.read() }, 7, "with `{settings}`");
        }
    }

    fn a_device_that_is_opened_after_the_fork_works() {
        let parents = device("");
        let status = forked(|| {
            let childs = device("policy:compact");
            let stream = childs.default_stream();
            let mut buffer = childs.allocate(MIB, stream).unwrap();
            buffer.fill(5, stream).unwrap();
            let mut bytes = [0; 8];
            buffer.read(100, &mut bytes, stream).unwrap();
            i32::from(bytes != [5; 8])
        });
        assert_eq!(status, 0);
        parents.synchronize().unwrap();
    }

    // By then the child may have mapped its own memory where the parent's was.
    fn a_device_that_goes_in_a_forked_child_unmaps_nothing() {
        let host = Host::new(0, 200 * MIB);
        let len = NonZeroU64::new(64 * MIB).unwrap();
        let at = host.alloc(len).unwrap().as_ptr();
        let status = forked(|| {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: Nothing is mapped there any more in the child.
            let own = unsafe { libc::mmap(at.cast(), 64 << 20, access, flags, -1, 0) }.cast::<u8>();
            // SAFETY: It was just mapped.
            unsafe { own.write(3) };
            drop(host);
            // SAFETY: It is still mapped, or the child is terminated here.
            i32::from(unsafe { own.read() } != 3)
        });
        assert_eq!(status, 0);
    }
}
