//! G, private pools that are paused: cases 102 to 104.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator_core::{Buffer, DriverErrorKind, Error, Keep, MIB, MemPool, MemPoolOptions, Result};

use super::context::{Device, Driver, holds};
use super::mem_pools::is_refused;
use super::{Case, Context, Outcome};
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    const NEEDS: &[Capability] = &[Capability::VirtualMemory, Capability::Bytes, Capability::Execution];
    vec![
        Case::new(102, "pause_and_resume", pause_and_resume).needs(NEEDS).of_any_policy(),
        Case::new(103, "resume_is_all_or_nothing", resume_is_all_or_nothing).needs(NEEDS).of_any_policy(),
        Case::new(104, "failure_at_every_driver_call_with_pauses", failure_at_every_driver_call_with_pauses)
            .needs(NEEDS)
            .of_any_policy(),
    ]
}

const MEMORY: u64 = 128 * MIB;
const SIZES: [u64; 4] = [700, 300 << 10, 3 * MIB, 12 * MIB];
const OTHER: u8 = 99;
const KEEPS: &str = "a pool that is paused must keep the bytes that it is told to keep";

fn pausable(device: Device) -> Result<MemPool<Driver>> {
    MemPool::new(device.accelerator(), MemPoolOptions { pausable: true, ..MemPoolOptions::default() })
}

/// Returns the path of a file that does not exist.
fn new_file() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("accelerator-conformance-{}-{number}", std::process::id()))
}

/// Returns the bytes that the driver has given out, as counted at its calls.
fn given_out(device: Device) -> u64 {
    device.backend().used()
}

fn is_paused<T>(result: Result<T>, pool: &MemPool<Driver>) -> bool {
    is_refused(result, pool.id()) && pool.is_paused()
}

/// Checks the bytes of each buffer.
fn check_bytes(buffers: &[(Buffer<Driver>, u8)]) -> Outcome {
    buffers.iter().try_for_each(|(buffer, value)| holds(buffer, *value, buffer.stream(), KEEPS))
}

fn pause_and_resume(context: &Context) -> Outcome {
    let device = context.device_with(MEMORY, "")?;
    let stream = device.default_stream();
    let beside = device.filled(3 * MIB, OTHER)?;
    let pool = pausable(device)?;
    let guard = pool.use_pool();
    let mut buffers = Vec::new();
    for (bytes, value) in SIZES.into_iter().zip(1..) {
        buffers.push((device.filled(bytes, value)?, value));
    }
    // A free block, whose memory goes back for good.
    drop(device.buffer(30 * MIB, stream)?);
    let file = new_file();
    let rounds = [(Keep::Host, false), (Keep::File(file.clone()), false), (Keep::Host, true), (Keep::Nothing, false)];
    for (keep, trims) in rounds {
        let addresses: Vec<_> = buffers.iter().map(|(buffer, _)| buffer.ptr()).collect();
        let before = given_out(device);
        let statistics = device.statistics();
        let mut steps = Vec::new();
        let paused = pool.pause_with(keep.clone(), &mut |step| steps.push(step))?;
        let now = device.statistics();
        assert_eq!(now.paused_bytes.unsigned_abs(), paused.bytes);
        assert_eq!(given_out(device), now.reserved_bytes.all.current.unsigned_abs() - paused.bytes);
        assert!(paused.bytes >= 16 * MIB && given_out(device) <= before - paused.bytes);
        assert_eq!(now.allocated_bytes, statistics.allocated_bytes, "blocks stay allocated");
        let last = steps.last().map(|step| (step.done, step.total));
        assert_eq!(last, (keep != Keep::Nothing).then_some((paused.bytes, paused.bytes)), "{keep:?}");
        assert!(pool.snapshot().segments.iter().all(|segment| segment.paused));
        device.check_consistency();

        // What uses the memory is refused, and what does not goes on.
        let place = buffers.len() - 1;
        let (last, _) = &mut buffers[place];
        assert!(is_paused(last.fill(0, stream), &pool));
        assert!(is_paused(last.record_use(device.side_stream()?), &pool));
        assert!(is_paused(last.read(0, &mut [0], stream), &pool));
        assert!(is_paused(last.write(0, &[0], stream), &pool));
        assert!(is_paused(device.alloc(512), &pool));
        assert!(is_paused(pool.pause(Keep::Nothing), &pool));
        holds_beside(&beside)?;
        drop(buffers.pop()); // a free
        if trims {
            pool.trim()?;
        }
        let left = device.statistics().paused_bytes.unsigned_abs();
        if trims {
            // The pages at its ends may have been free but for this block, and then go as well.
            assert!(left <= paused.bytes - SIZES[place], "what is free may go for good");
            assert!(pool.snapshot().segments.iter().all(|segment| segment.allocated_size > 0), "nothing free is left");
        } else {
            assert_eq!(left, paused.bytes, "freed memory stays until it is trimmed");
        }
        device.check_consistency();

        let resumed = pool.resume()?;
        assert_eq!((resumed.bytes, device.statistics().paused_bytes, pool.is_paused()), (left, 0, false));
        assert!(!file.exists(), "the file is removed");
        assert!(is_refused(pool.resume(), pool.id()), "it is not paused any more");
        assert!(buffers.iter().zip(&addresses).all(|((buffer, _), address)| buffer.ptr() == *address));
        if keep == Keep::Nothing {
            for (buffer, value) in &mut buffers {
                buffer.fill(*value, stream)?;
            }
        }
        check_bytes(&buffers)?;
        buffers.push((device.filled(SIZES[place], 70)?, 70));
        device.check_consistency();
    }

    // A pool may be dropped while it is paused, with blocks that live on.
    let _ = pool.pause(Keep::File(file.clone()))?;
    assert!(matches!(pool.pause(Keep::Host), Err(Error::MemPool { .. })));
    drop(guard);
    drop(pool);
    assert!(!file.exists(), "nobody can resume it, so the file is removed");
    drop(buffers);
    holds_beside(&beside)?;
    drop(beside);
    device.allocator().empty_cache()?;
    assert_eq!((device.reserved(), given_out(device), device.statistics().paused_bytes), (0, 0, 0));
    device.check_consistency();
    Ok(())
}

fn holds_beside(beside: &Buffer<Driver>) -> Outcome {
    holds(beside, OTHER, beside.stream(), "memory outside of the pool goes on")
}

fn resume_is_all_or_nothing(context: &Context) -> Outcome {
    let device = context.device_with(MEMORY, "")?;
    let stream = device.default_stream();
    let pools = [pausable(device)?, pausable(device)?];
    let mut buffers = Vec::new();
    for (pool, value) in pools.iter().zip(1..) {
        let _guard = pool.use_pool();
        buffers.push((device.filled(24 * MIB, value)?, value));
        buffers.push((device.filled(5 * MIB, value)?, value));
    }
    let _ = MemPool::pause_all(pools.iter().map(|pool| (pool, Keep::Host)))?;
    assert_eq!(given_out(device), 0);
    // There is room for one of the two.
    let other = device.alloc(80 * MIB)?;
    let refused = MemPool::resume_all(&[&pools[0], &pools[1]]);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert!(pools.iter().all(MemPool::is_paused));
    let held = device.statistics();
    assert_eq!(given_out(device), held.reserved_bytes.all.current.unsigned_abs() - held.paused_bytes.unsigned_abs());
    assert_eq!(given_out(device), other.size(), "all went back again");
    device.check_consistency();
    let _ = pools[1].resume()?;
    check_bytes(&buffers[2..])?;
    assert!(matches!(pools[0].resume(), Err(Error::OutOfMemory(_))) && pools[0].is_paused());
    // The cache goes back for it.
    device.free(other)?;
    let _ = pools[0].resume()?;
    check_bytes(&buffers)?;

    // Pauses are undone if a later one fails.
    let there = new_file();
    std::fs::write(&there, "not ours")?;
    let refused = MemPool::pause_all([(&pools[0], Keep::Host), (&pools[1], Keep::File(there.clone()))]);
    assert!(matches!(refused, Err(Error::PoolFile { .. })), "{refused:?}");
    assert!(!pools.iter().any(MemPool::is_paused));
    assert_eq!(std::fs::read(&there)?, b"not ours", "a file that exists is left alone");
    std::fs::remove_file(&there)?;
    check_bytes(&buffers)?;

    // If the file was cut short, nothing changes.
    let path = new_file();
    let _ = pools[0].pause(Keep::File(path.clone()))?;
    let contents = std::fs::read(&path)?;
    let file = std::fs::File::options().write(true).open(&path)?;
    file.set_len(contents.len() as u64 / 2)?;
    let refused = pools[0].resume();
    assert!(matches!(refused, Err(Error::PoolFile { .. })), "{refused:?}");
    assert!(is_paused(buffers[0].0.fill(0, stream), &pools[0]));
    device.check_consistency();
    std::fs::write(&path, &contents)?;
    let _ = pools[0].resume()?;
    assert!(!path.exists());
    check_bytes(&buffers)?;
    assert!(is_refused(MemPool::resume_all(&[&pools[0]]), pools[0].id()));
    device.check_consistency();
    Ok(())
}

fn failure_at_every_driver_call_with_pauses(context: &Context) -> Outcome {
    let device = context.device_with(MEMORY, "")?;
    assert_eq!(workload(device)?, 0, "no failure may be injected here");
    for kind in [DriverErrorKind::Other, DriverErrorKind::OutOfMemory] {
        let mut n = 1;
        loop {
            device.backend().fail_call(n, kind);
            if workload(device)? == 0 {
                break;
            }
            n += 1;
        }
        assert!(n > 10, "the workload makes too few driver calls: {n}");
    }
    Ok(())
}

/// Pauses and resumes a pool, and gives everything back. Whatever failed in between, the pool has its addresses and
/// what it was to keep, and no memory is lost. Returns how many calls were made to fail.
fn workload(device: Device) -> Result<u64, Failure> {
    let before = device.backend().injected();
    let pool = pausable(device)?;
    let guard = pool.use_pool();
    let stream = device.default_stream();
    let mut buffers: Vec<_> = SIZES[..3].iter().filter_map(|bytes| device.buffer(*bytes, stream).ok()).collect();
    let addresses: Vec<_> = buffers.iter().map(Buffer::ptr).collect();
    let file = new_file();
    let mut is_filled = vec![false; buffers.len()];
    for keep in [Keep::Nothing, Keep::Host, Keep::File(file.clone())] {
        let discards = keep == Keep::Nothing;
        let paused = pool.pause(keep);
        assert!(paused.is_err() || pool.is_paused());
        let resumed = pool.resume();
        assert!(resumed.is_err() || !pool.is_paused());
        device.check_consistency();
        if pool.is_paused() {
            device.backend().clear_failures();
            let _ = pool.resume()?;
        }
        assert!(!file.exists(), "the file is removed");
        if discards {
            let filled = buffers.iter_mut().zip(1..).map(|(buffer, value)| buffer.fill(value, stream).is_ok());
            is_filled = filled.collect();
        }
    }
    let injected = device.backend().injected() - before;
    device.backend().clear_failures();
    assert!(buffers.iter().map(Buffer::ptr).eq(addresses));
    for ((buffer, value), _) in buffers.iter().zip(1..).zip(&is_filled).filter(|(_, is_filled)| **is_filled) {
        holds(buffer, value, stream, KEEPS)?;
    }
    device.check_consistency();
    drop(guard);
    drop((pool, buffers));
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?;
    device.check_consistency();
    device.check_reservations();
    assert_eq!((device.reserved(), given_out(device), device.statistics().paused_bytes), (0, 0, 0));
    assert_eq!(device.backend().live_host_allocations(), 0, "what was kept has gone back");
    Ok(injected)
}
