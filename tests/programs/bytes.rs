//! Programs for every driver that check their data.

use accelerator_core::{Accelerator, Backend, Buffer, MIB, Stream};
use fastrand::Rng;

use super::process::Outcome;

/// Returns pseudo-random bytes, different for each seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

pub(crate) fn all_of<B: Backend>(buffer: &Buffer<B>, stream: Stream<B>) -> Vec<u8> {
    let mut read = vec![0; buffer.len() as usize];
    buffer.read(0, &mut read, stream).unwrap();
    read
}

pub(crate) fn round_trips<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    let (_, first) = device.properties().stream_priorities;
    for stream in [device.default_stream(), device.stream(0)?, device.stream(first)?] {
        for (seed, len) in [1, 3, 511, 512, 513, 70_000, (5 * MIB) as usize].into_iter().enumerate() {
            let written = bytes(seed as u64, len);
            let mut buffer = device.allocate(len as u64, stream)?;
            buffer.write(0, &written, stream)?;
            assert!(all_of(&buffer, stream) == written, "{len} bytes");
            let middle = len / 2;
            buffer.write(middle as u64, &written[..len - middle], stream)?;
            let expected = [&written[..middle], &written[..len - middle]].concat();
            assert!(all_of(&buffer, stream) == expected, "{len} bytes, the second half rewritten");
        }
    }
    Ok(())
}

pub(crate) fn fills_and_copies<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    let stream = device.stream(0)?;
    let (mut from, mut to) = (device.allocate(3 * MIB + 7, stream)?, device.allocate(4 * MIB, stream)?);
    from.fill(0x5a, stream)?;
    to.fill(0xa5, stream)?;
    to.copy_from(&from, stream)?;
    let read = all_of(&to, stream);
    let (copied, rest) = read.split_at(from.len() as usize);
    assert!(copied.iter().all(|byte| *byte == 0x5a) && rest.iter().all(|byte| *byte == 0xa5));
    drop((from, to));
    Ok(())
}

/// One stream writes, a second modifies and a third reads, with events in between and without any host wait.
pub(crate) fn chains_of_streams<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    let [first, second, third] = [0, 0, -1].map(|priority| device.stream(priority).unwrap());
    for round in 0..50_u64 {
        let written = bytes(round, 10_000 + round as usize);
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
    Ok(())
}

pub(crate) fn pinned<B: Backend>(device: &'static Accelerator<B>) -> Outcome {
    let stream = device.stream(0)?;
    let written = bytes(9, 100_000);
    let mut source = device.allocate_host(100_000)?;
    source.bytes_mut()?.copy_from_slice(&written);
    let mut buffer = device.allocate(100_000, stream)?;
    buffer.copy_from_pinned(0, &source, 0..100_000, stream)?;
    // Waits for the copy. Otherwise the device would read these bytes.
    source.bytes_mut()?.fill(0);
    assert!(all_of(&buffer, stream) == written);
    buffer.copy_to_pinned(0..100_000, &mut source, 0, stream)?;
    assert!(source.bytes()? == written);
    drop((source, buffer));
    Ok(())
}
