//! Histories of the facade's devices as snapshots: where a program allocated, in which scope, and the file.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use accelerator::{Buffer, Keep, MIB, MemPool, MemPoolOptions, memory, set_accelerator, use_mem_pool};
use accelerator_tracker::history::{
    ContextsOf, HistoryOptions, Stacks, dump_snapshot, record_memory_history, set_memory_metadata, snapshot,
    stop_memory_history,
};
use accelerator_tracker::picture::Profile;
use accelerator_tracker::report;
use accelerator_tracker::snapshot::{BlockState, MemorySnapshot, Setting, TraceAction, TraceEntry};
use accelerator_tracker::tracker::scope;

/// Takes a lock for one test at a time, because there is only one device.
fn host() -> MutexGuard<'static, ()> {
    static HOST: Mutex<()> = Mutex::new(());
    let guard = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    set_accelerator("host").unwrap();
    stop_memory_history(None).unwrap();
    memory::empty_cache().unwrap();
    guard
}

fn options(contexts: ContextsOf, stacks: Stacks) -> HistoryOptions {
    HistoryOptions { contexts, stacks, ..HistoryOptions::default() }
}

fn trace() -> Vec<TraceEntry> {
    snapshot().unwrap().device_traces.swap_remove(0)
}

const ALLOCATES: u32 = line!() + 3;
#[inline(never)]
fn allocates_a_page() -> Buffer {
    Buffer::allocate(4000, None).unwrap()
}

#[test]
fn entries_and_blocks_tell_where_the_program_allocated() {
    let _one = host();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap();
    let began: i64 = now();
    record_memory_history(options(ContextsOf::All, Stacks::Rust), None).unwrap();
    set_memory_metadata("step 7");
    let module = scope("layers.3");
    let buffer = allocates_a_page();
    drop(module);
    set_memory_metadata("");

    let taken = snapshot().unwrap();
    let entries = &taken.device_traces[0];
    assert_eq!(
        entries.iter().map(|entry| entry.action).collect::<Vec<_>>(),
        [TraceAction::SegmentAlloc, TraceAction::Alloc]
    );
    let block = taken.segments.iter().flat_map(|segment| &segment.blocks);
    let block = block.filter(|block| block.state == BlockState::Allocated).collect::<Vec<_>>();
    assert_eq!(block.len(), 1);
    for frames in [&entries[0].frames, &entries[1].frames, &block[0].frames, &taken.segments[0].frames] {
        let [first, second, .., last] = &frames[..] else { panic!("{frames:?}") };
        assert!(first.name.contains("allocates_a_page"), "{first:?}");
        assert!(first.filename.ends_with("snapshot.rs"), "{first:?}");
        assert_eq!(first.line, ALLOCATES);
        assert!(second.name.contains("entries_and_blocks_tell"), "{second:?}");
        assert_eq!((&*last.name, &*last.filename), ("layers.3", "scope"));
    }
    assert_eq!([&*entries[0].user_metadata, &*entries[1].user_metadata], ["step 7"; 2]);

    drop(buffer);
    let freed = trace();
    let completed = &freed[3];
    assert_eq!((completed.action, completed.size), (TraceAction::FreeCompleted, 4000));
    assert!(completed.frames[0].name.contains("entries_and_blocks_tell"), "{completed:?}");
    assert!(completed.user_metadata.is_empty());
    let times = freed.iter().map(|entry| entry.time_us);
    assert!([began].into_iter().chain(times).chain([now()]).is_sorted());
}

#[test]
fn without_stacks_there_are_only_scopes() {
    let _one = host();
    record_memory_history(options(ContextsOf::Alloc, Stacks::None), None).unwrap();
    let module = scope("embed");
    let first = allocates_a_page();
    drop(module);
    let second = allocates_a_page();
    drop(first);
    let names = |entry: &TraceEntry| entry.frames.iter().map(|frame| frame.name.to_string()).collect::<Vec<_>>();
    let told: Vec<_> = trace().iter().map(|entry| (entry.action, names(entry))).collect();
    let embed = || vec!["embed".to_owned()];
    let expected = [
        (TraceAction::SegmentAlloc, embed()),
        (TraceAction::Alloc, embed()),
        (TraceAction::Alloc, vec![]),
        (TraceAction::FreeRequested, embed()), // the context of its allocation
        (TraceAction::FreeCompleted, embed()),
    ];
    assert_eq!(told, expected);
    drop(second);
}

#[test]
fn a_snapshot_holds_what_the_allocator_does_and_its_file_reads_back() {
    let _one = host();
    memory::set_allocator_settings("max_split_size_mb:200,roundup_power2_divisions:[256:8,512:4,>:2]").unwrap();
    record_memory_history(HistoryOptions::default(), None).unwrap();
    let held: Vec<_> = [100, 3 * MIB, 700_000].map(|bytes| Buffer::allocate(bytes, None).unwrap()).into();
    drop(Buffer::allocate(30 * MIB, None).unwrap());

    let expected = memory::memory_snapshot().unwrap();
    let taken = snapshot().unwrap();
    let shape: Vec<_> = taken
        .segments
        .iter()
        .map(|segment| {
            let blocks = segment.blocks.iter().map(|block| (block.address, block.size, block.requested_size));
            (segment.address, segment.total_size, segment.allocated_size, blocks.collect::<Vec<_>>())
        })
        .collect();
    let expected: Vec<_> = expected
        .segments
        .iter()
        .map(|segment| {
            let blocks = segment.blocks.iter().map(|block| (block.address, block.size, block.requested_size));
            (segment.address, segment.total_size, segment.allocated_size, blocks.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(shape, expected);
    assert_eq!(shape.len(), 3);

    let setting = |key: &str| taken.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    assert_eq!(setting("max_split_size"), Some(Setting::Integer(200 << 20)));
    let Some(Setting::Table(divisions)) = setting("roundup_power2_divisions") else { panic!() };
    let of = |mebibytes: &str| divisions.iter().find(|(from, _)| from == mebibytes).unwrap().1;
    assert_eq!([of("1"), of("256"), of("512"), of("1024"), of("32768")], [8, 8, 4, 2, 2]);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.pickle");
    dump_snapshot(&file).unwrap();
    let read = MemorySnapshot::read(&file).unwrap();
    // `memory_snapshot` adds an entry to the history, `snapshot` does not.
    assert_eq!(read, taken);
    let missing = dump_snapshot(folder.path().join("no/such/folder")).unwrap_err().to_string();
    assert!(missing.contains("no/such/folder"), "{missing}");

    drop(held);
    memory::set_allocator_settings("").unwrap();
    stop_memory_history(None).unwrap();
    assert!(trace().is_empty());
}

#[test]
fn files_tell_which_pool_memory_belongs_to() {
    let _one = host();
    let pool = MemPool::new(None).unwrap();
    record_memory_history(HistoryOptions::default(), None).unwrap();
    let ordinary = Buffer::allocate(1, None).unwrap();
    let guard = use_mem_pool(&pool);
    let inside = Buffer::allocate(1, None).unwrap();
    drop(guard);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pools.pickle");
    dump_snapshot(&file).unwrap();
    let read = MemorySnapshot::read(&file).unwrap();
    let of_segments: Vec<_> = read.segments.iter().map(|segment| segment.pool_id).collect();
    assert!(of_segments.len() == 2 && of_segments.contains(&(0, 0)) && of_segments.contains(&pool.id().numbers()));
    let of_entries: Vec<_> = read.device_traces[0].iter().map(|entry| (entry.action.name(), entry.pool_id)).collect();
    let private = pool.id().numbers();
    assert_eq!(
        of_entries,
        [("segment_alloc", (0, 0)), ("alloc", (0, 0)), ("segment_alloc", private), ("alloc", private)]
    );
    drop((ordinary, inside));
    stop_memory_history(None).unwrap();
}

#[test]
fn files_and_reports_name_pools_and_tell_what_is_paused() {
    let _one = host();
    let options = |name: &str| MemPoolOptions { name: Some(name.into()), pausable: true, ..Default::default() };
    let (weights, cache) = (options("weights"), options("kv_cache <b>"));
    let pools = [weights, cache].map(|options| MemPool::with_options(None, options).unwrap());
    let held = pools.each_ref().map(|pool| {
        let _guard = use_mem_pool(pool);
        Buffer::allocate(3 * MIB, None).unwrap()
    });
    assert_eq!(pools[0].pause(Keep::Nothing).unwrap().bytes, 4 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paused.pickle");
    dump_snapshot(&file).unwrap();
    let read = MemorySnapshot::read(&file).unwrap();
    assert_eq!(read, snapshot().unwrap());
    let [weights, cache] = pools.each_ref().map(MemPool::id);
    let names = [(weights.numbers(), "weights".to_owned()), (cache.numbers(), "kv_cache <b>".to_owned())];
    assert_eq!(read.notes[0].pool_names, names);
    let paused: Vec<_> = read.segments.iter().map(|segment| (segment.pool_id, segment.is_paused)).collect();
    assert_eq!(paused.iter().filter(|(_, is_paused)| *is_paused).count(), 1, "{paused:?}");
    assert!(paused.contains(&(weights.numbers(), true)) && paused.contains(&(cache.numbers(), false)), "{paused:?}");

    let page = report::html(&Profile::of_snapshot("paused", &read, 0));
    assert!(page.contains(&format!("large, private weights ({weights})")), "{page}");
    assert!(page.contains(&format!("large, private kv_cache &lt;b&gt; ({cache})")) && !page.contains("<b>"));
    assert!(page.contains("paused, 4.00 MiB"), "the legend without scripts");
    assert_eq!(pools[0].resume().unwrap().bytes, 4 * MIB);
    drop(held);
}
