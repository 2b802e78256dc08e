use accelerator::{Buffer, MIB, MemPool, Result, memory_reserved, use_mem_pool};

pub fn main() -> Result<()> {
    let weights = Buffer::allocate(64 * MIB, None)?; // lives on, and is not in the pool
    {
        let pool = MemPool::new(None)?;
        let _guard = use_mem_pool(&pool);
        warm_up()?; // allocations on this thread, also deep in a library
        assert_eq!(pool.snapshot().segments.iter().map(|segment| segment.total_size).sum::<u64>(), 40 * MIB);
    } // the pool is dropped: all of its memory goes back to the driver, and no fragment of the phase stays behind

    assert_eq!(memory_reserved(None)?, weights.len());
    Ok(())
}

fn warm_up() -> Result<()> {
    for size in [40 * MIB, 30 * MIB, 20 * MIB] {
        drop(Buffer::allocate(size, None)?);
    }
    Ok(())
}
