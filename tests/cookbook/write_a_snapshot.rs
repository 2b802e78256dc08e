use accelerator::{Buffer, MIB, memory};
use accelerator_tracker::history::{
    ContextsOf, HistoryOptions, Stacks, dump_snapshot, record_memory_history,
};
use accelerator_tracker::snapshot::MemorySnapshot;

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The newest 100,000 entries, without stacks: cheap enough for a whole training run.
    let options = HistoryOptions { contexts: ContextsOf::State, max_entries: 100_000, stacks: Stacks::None };
    record_memory_history(options, None)?;

    for (count, size) in [(16, 12 * MIB), (12, 18 * MIB)] {
        let buffers: Vec<_> = (0..count).map(|_| Buffer::allocate(size, None)).collect::<Result<_, _>>()?;
        drop(buffers);
    }
    dump_snapshot("snapshot.pickle")?;

    let snapshot = MemorySnapshot::read("snapshot.pickle")?;
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!(reserved, accelerator::memory_reserved(None)?);
    println!("{}", memory::memory_summary_abbreviated(None)?);
    Ok(())
}
