//! Paused pools next to a cache.

use accelerator_conformance::Sim;
use accelerator_core::{Error, Keep, MIB, MemPool, MemPoolOptions, OutOfMemoryCause};
use libtest_mimic::{Failed, Trial};

use super::device;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("paused_pools::the_cache_goes_back_only_if_the_pool_needs_its_memory", resumed)]
}

fn resumed() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    let stream = device.default_stream();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() })?;
    let guard = pool.use_pool();
    let _kept = device.allocate(40 * MIB, stream)?;
    drop(guard);
    let used = || device.backend().used() / MIB;

    drop(device.allocate(20 * MIB, stream)?);
    assert_eq!((pool.pause(Keep::Nothing)?.bytes, used()), (40 * MIB, 20));
    assert_eq!((pool.resume()?.bytes, used()), (40 * MIB, 60), "there is room for both");

    let _ = pool.pause(Keep::Nothing)?;
    drop(device.allocate(30 * MIB, stream)?);
    assert_eq!(used(), 50);
    assert_eq!((pool.resume()?.bytes, used()), (40 * MIB, 40), "the cache is gone");

    let _ = pool.pause(Keep::Nothing)?;
    let live = device.allocate(30 * MIB, stream)?;
    let Err(Error::OutOfMemory(report)) = pool.resume() else { return Err("there is room".into()) };
    assert_eq!((report.requested, report.cause, report.paused), (40 * MIB, OutOfMemoryCause::Device, 40 * MIB));
    assert_eq!((used(), pool.is_paused()), (30, true));
    drop(live);
    assert_eq!((pool.resume()?.bytes, used()), (40 * MIB, 40));
    assert_eq!(device.allocator().statistics().paused_bytes, 0);
    Ok(())
}
