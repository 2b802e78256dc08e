//! A program that exercises all of the core, so that each of its driver calls can be made to fail.

use accelerator_core::{Accelerator, AllocatorConfig, Backend, Device, Error, EventFlags, MIB};

/// Uses a little of everything.
pub(crate) fn something_of_everything<B: Backend>(device: &'static Accelerator<B>) -> Result<(), Error> {
    let (default, first, second) = (device.default_stream(), device.stream(0)?, device.stream(-1)?);
    let mut buffer = device.allocate(3 * MIB, first)?;
    let mut other = device.allocate(3 * MIB, second)?;
    buffer.fill(1, first)?;
    buffer.write(100, &[2; 1000], first)?;
    second.wait_stream(first)?;
    other.copy_from(&buffer, second)?;
    drop(buffer); // `second` still uses it, so it waits for an event

    let mut pinned = device.allocate_host(1 << 20)?;
    pinned.bytes_mut()?.fill(3);
    other.copy_from_pinned(0, &pinned, 0..1 << 20, second)?;
    other.copy_to_pinned(0..1000, &mut pinned, 5, first)?;
    drop(device.allocate(512, first)?);
    pinned.bytes()?;
    drop(pinned);
    let mut again = device.allocate_host(1 << 20)?;
    other.fill(6, second)?;
    let read = other.read(0, again.bytes_mut()?, second);
    if let Err(error) = read {
        let bytes = again.bytes_mut()?.to_vec();
        device.synchronize()?;
        assert!(again.bytes()? == bytes, "a failed copy is still running: {error}");
        return Err(error);
    }
    assert!(again.bytes()?.iter().all(|byte| *byte == 6));
    drop(again);

    let [start, end] = [(); 2].map(|()| device.event(EventFlags::TIMING));
    start.record(first)?;
    other.fill(4, first)?;
    end.record(first)?;
    end.wait(default)?;
    end.synchronize()?;
    start.elapsed_time(&end)?;
    first.is_idle()?;
    device.memory_info()?;

    drop(device.allocate(100 * MIB, default)?);
    drop(device.allocate(200 * MIB, default)?); // requires releasing the cache
    assert!(matches!(device.allocate(600 * MIB, default), Err(Error::OutOfMemory(_) | Error::Driver { .. })));
    let mut read = [0; 10];
    other.read(0, &mut read, second)?;
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()
}

/// The outcome of the work, and the device that it ran on.
pub(crate) type Worked<B> = (Result<(), Error>, &'static Accelerator<B>);

/// Opens the first device again and does the work on it.
pub(crate) fn opened_and_worked<B: Backend>(
    work: fn(&'static Accelerator<B>) -> Result<(), Error>,
) -> Result<Worked<B>, Error> {
    let device = Device { kind: B::KIND, index: 0 };
    let backend = B::open(0).map_err(|source| Error::Driver { device, source })?;
    let device = Accelerator::new(backend, 0, AllocatorConfig::default())?;
    Ok((work(device), device))
}
