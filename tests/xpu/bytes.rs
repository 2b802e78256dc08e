//! Written bytes are read back, whatever order the driver chooses for unordered work.

use accelerator_core::EventFlags;
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::control;
use crate::programs::bytes::{self as programs, all_of, bytes};
use crate::programs::simulated::on_a_device;
use crate::rig::{Outcome, check_all_gone, device, simulated};

/// A driver without in-order lists, so the backend has to keep the order, whatever the loader supports.
pub(crate) const OLD_DRIVER: (&str, &str) = ("ZE_SIM_API_VERSION", "1.6");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("bytes::round_trips", &[], || on_a_device::<Xpu>(programs::round_trips)),
        simulated("bytes::fills_and_copies", &[], || on_a_device::<Xpu>(programs::fills_and_copies)),
        simulated("bytes::pinned", &[], || on_a_device::<Xpu>(programs::pinned)),
        simulated("bytes::one_stream", &[], one_stream),
        simulated("bytes::one_stream_of_an_old_driver", &[OLD_DRIVER], one_stream),
        simulated("bytes::host_memory_in_order", &[OLD_DRIVER], host_memory_in_order),
        simulated("bytes::waits_keep_the_order", &[OLD_DRIVER], waits_keep_the_order),
        simulated("bytes::chains_of_streams", &[], || on_a_device::<Xpu>(programs::chains_of_streams)),
        simulated("bytes::chains_of_streams_of_an_old_driver", &[OLD_DRIVER], || {
            on_a_device::<Xpu>(programs::chains_of_streams)
        }),
        simulated("bytes::who_orders", &[], who_orders),
    ]
}

/// Each command depends on the one before, and overwrites what that one would read if it ran later. Nothing waits or
/// polls meanwhile.
fn one_stream() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    for seed in 0..20 {
        control::seed(seed);
        let [mut first, mut second, mut third] = [(); 3].map(|()| device.allocate(64, stream).unwrap());
        for round in 0..50_u8 {
            first.fill(round, stream)?;
            second.copy_from(&first, stream)?;
            first.fill(0xee, stream)?;
            third.copy_from(&second, stream)?;
            second.fill(0xdd, stream)?;
        }
        assert_eq!(all_of(&third, stream), [49; 64], "seed {seed}");
        assert_eq!((all_of(&first, stream), all_of(&second, stream)), (vec![0xee; 64], vec![0xdd; 64]));
    }
    check_all_gone(device)
}

/// Copies from pinned memory and to pinned memory, and then overwrites it. The stream must keep this order.
fn host_memory_in_order() -> Outcome {
    const LEN: u64 = 200;
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(LEN, stream)?;
    for seed in 0..50 {
        control::seed(seed);
        let (mut source, mut result) = (device.allocate_host(LEN)?, device.allocate_host(LEN)?);
        let written = bytes(seed, LEN as usize);
        source.bytes_mut()?.copy_from_slice(&written);
        for at in 0..LEN {
            // All bytes are copied through the same address.
            buffer.copy_from_pinned(0, &source, at..at + 1, stream)?;
            buffer.copy_to_pinned(0..1, &mut result, at, stream)?;
        }
        buffer.fill(0xee, stream)?;
        assert!(result.bytes()? == written, "seed {seed}");
    }
    drop(buffer);
    check_all_gone(device)
}

/// Waiting for another stream does not let later work overtake earlier work.
fn waits_keep_the_order() -> Outcome {
    let device = device()?;
    let (stream, other) = (device.stream(0)?, device.stream(0)?);
    let (mut buffer, mut copy) = (device.allocate(64, stream)?, device.allocate(64, stream)?);
    let mut unrelated = device.allocate(64, other)?;
    let event = device.event(EventFlags::default());
    for seed in 0..100 {
        control::seed(seed);
        buffer.fill(1, stream)?;
        copy.fill(0, stream)?;
        unrelated.fill(1, other)?;
        event.record(other)?;
        buffer.fill(2, stream)?;
        event.wait(stream)?;
        copy.copy_from(&buffer, stream)?;
        buffer.fill(3, stream)?;
        assert_eq!(all_of(&copy, stream), [2; 64], "seed {seed}");
    }
    drop((buffer, copy, unrelated));
    check_all_gone(device)
}

/// The driver keeps the order if it can, and then no barriers are used. Old loaders cannot request that.
fn who_orders() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let mut buffer = device.allocate(64, stream)?;
    let before = control::calls_of("zeCommandListAppendBarrier");
    for value in 0..10 {
        buffer.fill(value, stream)?;
    }
    let barriers = control::calls_of("zeCommandListAppendBarrier") - before;
    let loader_knows = device.backend().level_zero().zeCommandListGetDeviceHandle().is_ok();
    assert_eq!(barriers, if loader_knows { 0 } else { 9 });
    drop(buffer);
    check_all_gone(device)
}
