use accelerator::{
    Buffer, Error, Keep, MIB, MemPool, MemPoolOptions, Result, get_memory_info, memory, use_mem_pool,
};

pub fn main() -> Result<()> {
    limit(100 * MIB)?; // so that the memory is scarce here
    // Two pools, since the weights are worth keeping and the cache is not.
    let (weights, kv_cache) = (pausable("weights")?, pausable("kv_cache")?);
    let layer = within(&weights, || Buffer::from_slice(&[0.5f32; 1000], None))?;
    let mut cache = within(&kv_cache, || Buffer::allocate(64 * MIB, None))?;

    // The model has nothing to do. Its memory is for others now.
    let report = weights.pause(Keep::Host)?;
    println!("{} bytes went back in {:?}", report.bytes, report.duration);
    let _ = kv_cache.pause(Keep::Nothing)?;
    assert!(matches!(cache.fill(1), Err(Error::MemPool { .. })));
    let other = Buffer::allocate(80 * MIB, None)?;

    // A request comes: first the weights.
    let _ = weights.resume()?;
    assert_eq!(layer.to_vec::<f32>()?, [0.5; 1000]);

    // Then the cache, as soon as there is memory for it. A resume that fails changes nothing.
    assert!(matches!(kv_cache.resume(), Err(Error::OutOfMemory(_))));
    assert!(kv_cache.is_paused());
    drop(other);
    let _ = kv_cache.resume()?;
    cache.fill(0)?; // the old contents were discarded
    Ok(())
}

/// Makes a pool whose name stands in errors and reports.
fn pausable(name: &str) -> Result<MemPool> {
    let name = Some(name.into());
    MemPool::with_options(None, MemPoolOptions { name, pausable: true, ..MemPoolOptions::default() })
}

fn within<T>(pool: &MemPool, allocate: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = use_mem_pool(pool);
    allocate()
}

fn limit(bytes: u64) -> Result<()> {
    memory::set_per_process_memory_fraction(bytes as f64 / get_memory_info(None)?.total as f64, None)
}
