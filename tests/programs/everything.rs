//! Programs that exercise all of the core, so that each of their driver calls can be made to fail.
#![allow(unsafe_code)] // `Graph::replay`

use std::path::PathBuf;

use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, Buffer, CaptureMode, Device, Error, EventFlags, Graph, Keep, MIB, MemPool,
    MemPoolOptions, Stream,
};

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

/// Uses private pools, a graph that is captured and replayed, and a pool that is paused and resumed.
pub(crate) fn pools_graphs_and_pauses<B: Backend>(device: &'static Accelerator<B>) -> Result<(), Error> {
    let [stream, side] = [device.stream(0)?, device.stream(0)?];
    let plain = MemPool::new(device, MemPoolOptions::default())?;
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let (pausable, can_pause) = match MemPool::new(device, options) {
        // The driver refused to say whether it has virtual memory, so the device does without.
        Err(Error::MemPool { .. }) => (MemPool::new(device, MemPoolOptions::default())?, false),
        made => (made?, true),
    };
    let mut kept = allocated_in(device, &pausable, 3 * MIB, stream)?;
    let mut short_lived = allocated_in(device, &plain, 3 * MIB, stream)?;
    short_lived.fill(1, side)?;
    drop(short_lived);
    kept.fill(1, stream)?;

    let mut graph = Graph::new(device)?;
    graph.capture_begin(stream, None, CaptureMode::default())?;
    let captured = kept.fill(2, stream).and_then(|()| {
        side.wait_stream(stream)?;
        let mut inside = device.allocate(MIB, stream)?;
        inside.fill(3, side)?;
        drop(inside);
        stream.wait_stream(side)?;
        device.allocate(MIB, stream)?.fill(4, stream)
    });
    graph.capture_end()?;
    captured?;
    graph.upload(stream)?;
    for _ in 0..2 {
        // SAFETY: `kept` outlives the graph's work, and no other stream uses its memory.
        unsafe { graph.replay(stream) }?;
    }
    check(&kept, 2)?;

    if can_pause {
        pause(&pausable, &mut kept, stream)?;
    }
    plain.trim()?;
    graph.reset()?;
    device.synchronize()?;
    device.allocator().empty_cache()
}

/// Pauses and resumes a pool with this buffer, which holds 2, in each way.
fn pause<B: Backend>(pool: &MemPool<B>, kept: &mut Buffer<B>, stream: Stream<B>) -> Result<(), Error> {
    let file = std::env::temp_dir().join(format!("paused-in-turn-{}", std::process::id()));
    for keep in [Keep::Host, Keep::File(PathBuf::clone(&file)), Keep::Nothing] {
        let discards = keep == Keep::Nothing;
        let _ = pool.pause(keep)?;
        let resumed = pool.resume();
        if resumed.is_err() {
            assert!(pool.is_paused() && kept.fill(0, stream).is_err(), "nothing is resumed half");
            let _ = pool.resume()?;
        }
        assert!(!file.exists(), "the file is removed");
        match discards {
            true => kept.fill(2, stream)?,
            false => check(kept, 2)?,
        }
        let _ = resumed?;
    }
    Ok(())
}

fn allocated_in<B: Backend>(
    device: &'static Accelerator<B>,
    pool: &MemPool<B>,
    bytes: u64,
    stream: Stream<B>,
) -> Result<Buffer<B>, Error> {
    let _guard = pool.use_pool();
    device.allocate(bytes, stream)
}

/// Checks that every byte of the buffer has this value.
fn check<B: Backend>(buffer: &Buffer<B>, value: u8) -> Result<(), Error> {
    let mut bytes = vec![0; buffer.len() as usize];
    buffer.read(0, &mut bytes, buffer.stream())?;
    assert!(bytes.iter().all(|byte| *byte == value), "the buffer does not hold {value}");
    Ok(())
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
