//! What is written is read back, whatever order the driver chooses for what may run in any.

use accelerator_core::{Buffer, EventFlags, MIB, Stream};
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::control;
use crate::rig::{Outcome, check_all_gone, device, simulated};

/// One that knows no order of its own, so that the backend has to keep it, whatever the loader can.
pub(crate) const OLD_DRIVER: (&str, &str) = ("ZE_SIM_API_VERSION", "1.6");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("bytes::round_trips", &[], round_trips),
        simulated("bytes::fills_and_copies", &[], fills_and_copies),
        simulated("bytes::pinned", &[], pinned),
        simulated("bytes::one_stream", &[], one_stream),
        simulated("bytes::one_stream_of_an_old_driver", &[OLD_DRIVER], one_stream),
        simulated("bytes::host_memory_in_order", &[OLD_DRIVER], host_memory_in_order),
        simulated("bytes::waits_keep_the_order", &[OLD_DRIVER], waits_keep_the_order),
        simulated("bytes::chains_of_streams", &[], chains_of_streams),
        simulated("bytes::chains_of_streams_of_an_old_driver", &[OLD_DRIVER], chains_of_streams),
        simulated("bytes::who_orders", &[], who_orders),
    ]
}

/// Bytes that look random, others for each seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn all_of(buffer: &Buffer<Xpu>, stream: Stream<Xpu>) -> Vec<u8> {
    let mut read = vec![0; buffer.len() as usize];
    buffer.read(0, &mut read, stream).unwrap();
    read
}

fn round_trips() -> Outcome {
    let device = device()?;
    for stream in [device.default_stream(), device.stream(0)?, device.stream(-1)?] {
        for (seed, len) in [1, 3, 511, 512, 513, 70_000, (5 * MIB) as usize].into_iter().enumerate() {
            let written = bytes(seed as u64, len);
            let mut buffer = device.allocate(len as u64, stream)?;
            buffer.write(0, &written, stream)?;
            assert!(all_of(&buffer, stream) == written, "{len} bytes");
            let middle = len / 2;
            buffer.write(middle as u64, &written[..len - middle], stream)?;
            let expected = [&written[..middle], &written[..len - middle]].concat();
            assert!(all_of(&buffer, stream) == expected, "{len} bytes, the second half anew");
        }
    }
    check_all_gone(device)
}

fn fills_and_copies() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let (mut from, mut to) = (device.allocate(3 * MIB + 7, stream)?, device.allocate(4 * MIB, stream)?);
    from.fill(0x5a, stream)?;
    to.fill(0xa5, stream)?;
    to.copy_from(&from, stream)?;
    let read = all_of(&to, stream);
    let (copied, rest) = read.split_at(from.len() as usize);
    assert!(copied.iter().all(|byte| *byte == 0x5a) && rest.iter().all(|byte| *byte == 0xa5));
    drop((from, to));
    check_all_gone(device)
}

fn pinned() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let written = bytes(9, 100_000);
    let mut source = device.allocate_host(100_000)?;
    source.bytes_mut()?.copy_from_slice(&written);
    let mut buffer = device.allocate(100_000, stream)?;
    buffer.copy_from_pinned(0, &source, 0..100_000, stream)?;
    // Waits for the copy, or the device would read these.
    source.bytes_mut()?.fill(0);
    assert!(all_of(&buffer, stream) == written);
    buffer.copy_to_pinned(0..100_000, &mut source, 0, stream)?;
    assert!(source.bytes()? == written);
    drop((source, buffer));
    check_all_gone(device)
}

/// Each command needs the one before, and spoils what that would find if it came later. Nothing waits or asks meanwhile.
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

/// From pinned memory, to pinned memory, and over it again, behind one another.
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
            // Each byte goes by the same place.
            buffer.copy_from_pinned(0, &source, at..at + 1, stream)?;
            buffer.copy_to_pinned(0..1, &mut result, at, stream)?;
        }
        buffer.fill(0xee, stream)?;
        assert!(result.bytes()? == written, "seed {seed}");
    }
    drop(buffer);
    check_all_gone(device)
}

/// A wait for another stream does not let what follows it overtake what is before it.
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

/// In by one stream, changed by another, out by a third, with events between and without any wait of the host.
fn chains_of_streams() -> Outcome {
    let device = device()?;
    let [first, second, third] = [0, 0, -1].map(|priority| device.stream(priority).unwrap());
    for round in 0..150_u64 {
        control::seed(round);
        let written = bytes(round, 1_000 + round as usize);
        let len = written.len() as u64;
        let mut source = device.allocate_host(len)?;
        source.bytes_mut()?.copy_from_slice(&written);
        let mut result = device.allocate_host(len)?;
        let mut buffer = device.allocate(len, first)?;
        let mut copy = device.allocate(len, second)?;
        buffer.copy_from_pinned(0, &source, 0..len, first)?;
        second.wait_stream(first)?;
        copy.copy_from(&buffer, second)?;
        third.wait_stream(second)?;
        copy.copy_to_pinned(0..len, &mut result, 0, third)?;
        drop((buffer, copy)); // their memory is not reused before the work is done
        drop(source);
        assert!(result.bytes()? == written, "round {round}");
    }
    check_all_gone(device)
}

/// The driver where it can, and then no barrier is in its way. Old loaders do not know how to ask for that.
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
