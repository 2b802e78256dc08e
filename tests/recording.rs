//! The history recorder: which entries have a context, the order of entries, and that user code never runs under a
//! lock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::HistoryAction::{CacheEmptied, Refused, Trace};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, BlockState, ContextsOf, History, HistoryContext, HistoryEntry, MIB,
    Recording, TraceAction,
};

type Device = &'static Accelerator<Sim>;

fn device() -> Device {
    device_with("")
}

fn device_with(settings: &str) -> Device {
    Accelerator::new(Sim::new(1 << 40), 0, AllocatorConfig::default().updated(settings).unwrap()).unwrap()
}

fn allocate(device: Device, bytes: u64) -> Allocation<Sim> {
    device.allocator().allocate(NonZeroU64::new(bytes).unwrap(), device.default_stream()).unwrap()
}

fn free(device: Device, allocation: Allocation<Sim>) {
    device.allocator().free(allocation).unwrap();
}

fn record(device: Device, max_entries: usize, contexts: ContextsOf) {
    let recording = Recording { max_entries, contexts, capture: Some(number) };
    device.allocator().record_history(Some(recording));
}

thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });

/// Returns a context with the number of the call.
fn number() -> Option<HistoryContext> {
    NUMBER.set(NUMBER.get() + 1);
    Some(Arc::new(NUMBER.get()))
}

fn number_of(context: Option<&HistoryContext>) -> Option<u64> {
    context.map(|context| *context.downcast_ref::<u64>().unwrap())
}

fn told(history: &History) -> Vec<(TraceAction, u64, Option<u64>)> {
    let entries = history.entries.iter().map(|entry| {
        let Trace(action) = entry.action else { panic!("{entry:?}") };
        (action, entry.size, number_of(entry.context.as_ref()))
    });
    entries.collect()
}

#[test]
fn each_level_keeps_its_contexts() {
    use TraceAction::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc};
    for (contexts, taken, freed) in
        [(ContextsOf::State, None, None), (ContextsOf::Alloc, Some(1), Some(1)), (ContextsOf::All, Some(1), Some(3))]
    {
        NUMBER.set(0);
        let device = device();
        record(device, usize::MAX, contexts);
        let first = allocate(device, 1000); // and its segment
        let kept = allocate(device, 3000);
        free(device, first); // a context is requested only if frees have their own
        assert_eq!(NUMBER.get(), if contexts == ContextsOf::All { 3 } else { 2 });
        let history = device.allocator().history();
        let second = if contexts == ContextsOf::State { None } else { Some(2) };
        let expected = [
            (SegmentAlloc, 2 * MIB, taken),
            (Alloc, 1000, taken),
            (Alloc, 3000, second),
            (FreeRequested, 1000, freed),
            (FreeCompleted, 1000, freed),
        ];
        assert_eq!(told(&history), expected, "{contexts:?}");

        let kept_at = kept.ptr();
        let of_block = history.block_contexts.iter().map(|(at, context)| (*at, number_of(Some(context))));
        let kept_at = accelerator_core::DevicePtr::trace_address(kept_at);
        assert_eq!(of_block.collect::<Vec<_>>(), [(kept_at, Some(2))], "{contexts:?}");
        assert_eq!(history.segment_contexts.len(), 1);
        free(device, kept);
        assert!(device.allocator().history().block_contexts.is_empty());
    }
}

#[test]
fn the_newest_entries_are_kept_and_the_others_counted() {
    let device = device();
    device.allocator().set_memory_fraction(0.5).unwrap();
    record(device, 4, ContextsOf::All);
    device.allocator().set_memory_fraction(0.25).unwrap();
    let changed = AllocatorConfig::default().updated("max_split_size_mb:100").unwrap();
    device.allocator().set_config(changed);
    for _ in 0..3 {
        free(device, allocate(device, 5000));
    }
    let history = device.allocator().history();
    assert_eq!(history.entries.len(), 4);
    assert_eq!(history.dropped, 2 + 1 + 9 - 4, "two changes, a segment, three entries each time");
    // The changes from the dropped entries are in the initial state.
    assert_eq!((history.settings, history.memory_fraction), (changed, 0.25));

    record(device, 2, ContextsOf::All);
    assert_eq!(device.allocator().history().entries.len(), 2);
    device.allocator().record_history(None);
    free(device, allocate(device, 5000));
    assert_eq!(device.allocator().history().entries.len(), 0);
    record(device, 0, ContextsOf::All);
    free(device, allocate(device, 5000));
    assert_eq!(device.allocator().history().entries.len(), 0);
}

#[test]
fn what_pytorch_does_not_tell_stands_where_it_happened() {
    let device = Accelerator::new(Sim::new(64 * MIB), 0, AllocatorConfig::default()).unwrap();
    let allocator = device.allocator();
    let side = device.dedicated_stream(0).unwrap();
    record(device, usize::MAX, ContextsOf::State);
    let used = allocate(device, 30 * MIB);
    allocator.record_use(&used, side).unwrap();
    device.backend().hold(side.native());
    free(device, used);
    device.backend().release(side.native());
    device.backend().fail_allocs(1);
    let next = allocate(device, 40 * MIB); // refused at first, so that the first block's segment is released
    allocator.empty_cache().unwrap();
    assert!(allocator.allocate(NonZeroU64::new(50 * MIB).unwrap(), device.default_stream()).is_err());
    let _ = allocator.snapshot();
    let actions: Vec<_> = allocator.history().entries.into_iter().map(|entry| entry.action).collect();
    let expected = [
        Trace(TraceAction::SegmentAlloc),
        Trace(TraceAction::Alloc),
        Trace(TraceAction::FreeRequested),
        Trace(TraceAction::FreeCompleted), // noticed by the next allocation
        Refused,
        Trace(TraceAction::SegmentFree),
        Trace(TraceAction::SegmentAlloc),
        Trace(TraceAction::Alloc),
        CacheEmptied,
        Refused,
        Refused,
        Trace(TraceAction::OutOfMemory { device_free: 24 * MIB }),
        Trace(TraceAction::Snapshot),
    ];
    assert_eq!(actions, expected);
    free(device, next);
}

/// Reads the allocator's state and empties its cache when dropped, and counts that. If it were dropped under a lock of
/// the allocator, or in a step that the allocator waits for, it would deadlock.
struct Looks(Device, Arc<AtomicU64>);

impl Drop for Looks {
    fn drop(&mut self) {
        let allocator = self.0.allocator();
        let _ = (allocator.history(), allocator.config());
        allocator.empty_cache().unwrap();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local!(static LOOKING: Cell<Option<(Device, &'static Arc<AtomicU64>)>> = const { Cell::new(None) });

fn looks() -> Option<HistoryContext> {
    let (device, dropped) = LOOKING.get()?;
    let _ = (device.allocator().snapshot(), device.allocator().config());
    Some(Arc::new(Looks(device, Arc::clone(dropped))))
}

#[test]
fn contexts_are_captured_and_dropped_under_no_lock() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let device = device();
        let dropped: &'static Arc<AtomicU64> = Box::leak(Box::default());
        LOOKING.set(Some((device, dropped)));
        let allocator = device.allocator();
        let looking = |max_entries, contexts| Recording { max_entries, contexts, capture: Some(looks) };
        // Freed blocks that another stream uses, which are polled and waited for.
        let side = device.dedicated_stream(0).unwrap();
        allocator.record_history(Some(looking(usize::MAX, ContextsOf::State)));
        for round in 0..4 {
            let used = allocate(device, 30 * MIB);
            allocator.record_use(&used, side).unwrap();
            device.backend().hold(side.native());
            free(device, used);
            device.backend().release(side.native());
            match round {
                0 => free(device, allocate(device, 1000)),
                1 => allocator.empty_cache().unwrap(),
                2 => allocator.set_memory_fraction(1.0).unwrap(),
                _ => device.backend().fail_allocs(1),
            }
        }
        assert!(dropped.load(Ordering::Relaxed) > 2);
        allocator.record_history(Some(looking(3, ContextsOf::All)));
        let blocks: Vec<_> = (0..4).map(|_| allocate(device, 30 * MIB)).collect();
        blocks.into_iter().for_each(|block| free(device, block));
        allocator.empty_cache().unwrap();
        device.backend().fail_allocs(2);
        assert!(allocator.allocate(NonZeroU64::MIN, device.default_stream()).is_err());
        let before = dropped.load(Ordering::Relaxed);
        allocator.record_history(None);
        done.send((before, dropped.load(Ordering::Relaxed))).unwrap();
    });
    let (before, after) = ended.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert!(before > 8, "{before} contexts were dropped while others were added");
    assert!(after > before, "the rest were dropped with the history");
}

#[test]
fn entries_of_threads_stand_in_the_order_of_the_statistics() {
    entries_of_threads_stand_in_order(device());
}

#[test]
fn entries_of_expandable_segments_stand_in_the_order_of_the_statistics() {
    let history = entries_of_threads_stand_in_order(device_with("expandable_segments:True"));
    let count = |action| history.entries.iter().filter(|entry| entry.action == Trace(action)).count();
    assert!(count(TraceAction::SegmentMap) > 3 && count(TraceAction::SegmentUnmap) > 3);
    assert_eq!(count(TraceAction::SegmentAlloc) + count(TraceAction::SegmentFree), 0);
}

fn entries_of_threads_stand_in_order(device: Device) -> History {
    let allocator = device.allocator();
    allocator.record_history(Some(Recording { max_entries: usize::MAX, contexts: ContextsOf::All, capture: None }));
    let streams: Vec<_> = (0..3).map(|_| device.dedicated_stream(0).unwrap()).collect();
    thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            let other = streams[(number + 1) % streams.len()];
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for round in 0..3000_u64 {
                    let bytes = 1 + (round * 7919 * (number as u64 + 1)) % (3 * MIB);
                    let block = allocator.allocate(NonZeroU64::new(bytes).unwrap(), *stream).unwrap();
                    if round % 3 == 0 {
                        allocator.record_use(&block, other).unwrap();
                    }
                    held.push_back(block);
                    if held.len() > 20 {
                        allocator.free(held.pop_front().unwrap()).unwrap();
                    }
                    if round % 500 == 499 {
                        allocator.empty_cache().unwrap();
                    }
                }
                held.into_iter().for_each(|block| allocator.free(block).unwrap());
            });
        }
    });
    let history = allocator.history();
    let left = walk(&history.entries);
    let blocks = history.snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let active = blocks.filter(|block| block.state != BlockState::Inactive).count();
    let reserved = history.snapshot.segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!(left, (active, reserved));
    let requests = history.entries.iter().filter(|entry| entry.action == Trace(TraceAction::Alloc)).count();
    assert_eq!(requests, 9000);
    history
}

/// Replays the entries on a model of what is live, and fails on an entry that cannot follow the previous ones. Returns
/// the remaining blocks, and the bytes of segments and pages.
fn walk(entries: &[HistoryEntry]) -> (usize, u64) {
    const PAGE: u64 = 2 * MIB; // every page size is a multiple of this
    let mut blocks: HashMap<u64, (u64, bool)> = HashMap::new();
    let mut segments: HashMap<u64, u64> = HashMap::new();
    let mut pages: BTreeSet<u64> = BTreeSet::new();
    for (place, entry) in entries.iter().enumerate() {
        let HistoryEntry { action: Trace(action), address, size, .. } = entry else { continue };
        let what = format!("entry {place}: {entry:?}");
        let mut range = (*address..address + size).step_by(PAGE as usize);
        match action {
            TraceAction::SegmentAlloc => assert_eq!(segments.insert(*address, *size), None, "{what}"),
            TraceAction::SegmentFree => {
                assert_eq!(segments.remove(address), Some(*size), "{what}");
                let inside = blocks.keys().any(|block| (*address..address + size).contains(block));
                assert!(!inside, "{what}: it has live blocks");
            }
            TraceAction::SegmentMap => {
                assert!(range.all(|page| pages.insert(page)), "{what}: mapped twice");
            }
            TraceAction::SegmentUnmap => {
                assert!(range.all(|page| pages.remove(&page)), "{what}: not mapped");
                let inside = |(at, (len, _)): (&u64, &(u64, bool))| *at < address + size && at + len > *address;
                assert!(!blocks.iter().any(inside), "{what}: it has live blocks");
            }
            TraceAction::Alloc => {
                let paged =
                    (address / PAGE..(address + size).div_ceil(PAGE)).all(|page| pages.contains(&(page * PAGE)));
                let within = paged || segments.iter().any(|(at, len)| (*at..at + len).contains(address));
                assert!(within, "{what}: not in a segment");
                assert_eq!(blocks.insert(*address, (*size, false)), None, "{what}");
            }
            TraceAction::FreeRequested => {
                assert_eq!(blocks.insert(*address, (*size, true)), Some((*size, false)), "{what}");
            }
            TraceAction::FreeCompleted => assert_eq!(blocks.remove(address), Some((*size, true)), "{what}"),
            _ => {}
        }
    }
    (blocks.len(), segments.values().sum::<u64>() + pages.len() as u64 * PAGE)
}

#[test]
fn a_history_that_begins_and_ends_beside_threads_is_whole_while_it_lasts() {
    let device = device();
    let allocator = device.allocator();
    let (stream, other) = (device.default_stream(), device.dedicated_stream(0).unwrap());
    let (ended, handed) = (AtomicU64::new(0), std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for number in 0..3_u64 {
            let (ended, handed) = (&ended, &handed);
            scope.spawn(move || {
                for round in 0..4000_u64 {
                    let bytes = 1 + (round * 7919 * (number + 1)) % (2 * MIB);
                    let block = allocator.allocate(NonZeroU64::new(bytes).unwrap(), stream).unwrap();
                    if round % 2 == 0 {
                        allocator.record_use(&block, other).unwrap();
                    }
                    // One thread frees what another has allocated.
                    let mut handed = handed.lock().unwrap();
                    handed.push(block);
                    let oldest = (handed.len() > 16).then(|| handed.remove(0));
                    drop(handed);
                    oldest.into_iter().for_each(|block| allocator.free(block).unwrap());
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut looks = 0;
        while ended.load(Ordering::Relaxed) < 3 || looks < 20 {
            record(device, usize::MAX, ContextsOf::All);
            thread::yield_now();
            let history = allocator.history();
            allocator.record_history(None);
            follows(&history);
            looks += 1;
        }
    });
    handed.into_inner().unwrap().into_iter().for_each(|block| allocator.free(block).unwrap());
}

/// Undoes a history from its end. Each entry must match the state at that point, and the final result must be the
/// initial state.
fn follows(history: &History) {
    let blocks = history.snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let active = blocks.filter(|block| block.state != BlockState::Inactive);
    let mut there: HashMap<u64, bool> =
        active.map(|block| (block.address, block.state == BlockState::PendingFree)).collect();
    for (place, entry) in history.entries.iter().enumerate().rev() {
        let what = format!("entry {place} of {}: {entry:?}", history.entries.len());
        match entry.action {
            Trace(TraceAction::FreeCompleted) => {
                assert_eq!(there.insert(entry.address, true), None, "{what}")
            }
            Trace(TraceAction::FreeRequested) => {
                assert_eq!(there.insert(entry.address, false), Some(true), "{what}");
            }
            Trace(TraceAction::Alloc) => assert_eq!(there.remove(&entry.address), Some(false), "{what}"),
            _ => {}
        }
    }
}

#[test]
fn settings_are_read_back_from_their_text() {
    for text in [
        "",
        "max_split_size_mb:64",
        "large_segment_size_mb:40,max_split_size_mb:40,max_non_split_rounding_mb:80",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[64:8,256:4,1024:0,>:2]",
        "garbage_collection_threshold:0.37,per_process_memory_fraction:0.9",
        "expandable_segments:True,large_segment_size_mb:40",
        "throw_on_cudamalloc_oom:True,device_side_reuse:True,caching:False",
        "pinned_max_round_threshold_mb:7,pinned_max_cached_size_mb:9,pinned_use_background_threads:True",
    ] {
        let config = AllocatorConfig::default().updated(text).unwrap();
        let shown = config.to_string();
        assert_eq!(AllocatorConfig::default().updated(&shown).unwrap(), config, "{text} shown as {shown}");
        assert_eq!(shown.is_empty(), text.is_empty(), "{shown}");
    }
}
