use accelerator::{
    Buffer, Error, MIB, Result, empty_cache, empty_host_cache, get_memory_info, memory, memory_reserved,
};

pub fn main() -> Result<()> {
    // At most 256 MiB, as a share of the device.
    let total = get_memory_info(None)?.total;
    memory::set_per_process_memory_fraction(256.0 * MIB as f64 / total as f64, None)?;

    let buffer = Buffer::allocate(200 * MIB, None)?;
    let refused = Buffer::allocate(100 * MIB, None);
    assert!(matches!(refused, Err(Error::OutOfMemory(_)))); // although the device has more

    drop(buffer);
    assert_eq!(memory_reserved(None)?, 200 * MIB); // cached: other processes cannot have it
    empty_cache()?; // waits for the device, then gives back what is free
    assert_eq!(memory_reserved(None)?, 0);
    empty_host_cache()?; // the same for pinned host memory
    Ok(())
}
