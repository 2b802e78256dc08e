use accelerator::{Buffer, MIB, Result, empty_cache, max_memory_reserved, memory, reset_peak_memory_stats};

pub fn main() -> Result<()> {
    let by_default = reserved_under("")?;
    let expandable = reserved_under("expandable_segments:True")?;
    let compact = reserved_under("policy:compact")?;
    for (settings, bytes) in [("the default", by_default), ("expandable", expandable), ("compact", compact)] {
        println!("{settings}: {} MiB reserved", bytes >> 20);
    }
    assert_eq!(by_default, (16 * 12 + 12 * 18) * MIB); // no request of 18 MiB fits a segment of 12 MiB
    assert!(expandable < 250 * MIB && compact < 250 * MIB);
    Ok(())
}

/// The most that a job reserves: 16 buffers of 12 MiB, and when these are gone, 12 of 18 MiB.
fn reserved_under(settings: &str) -> Result<u64> {
    memory::set_allocator_settings(settings)?;
    empty_cache()?;
    reset_peak_memory_stats(None)?;
    for (count, size) in [(16, 12 * MIB), (12, 18 * MIB)] {
        let buffers: Result<Vec<_>> = (0..count).map(|_| Buffer::allocate(size, None)).collect();
        drop(buffers?);
    }
    max_memory_reserved(None)
}
