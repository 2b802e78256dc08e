//! Measures costs that grow with the number of blocks, and how long other threads wait. Prints tables for
//! `docs/BENCHMARKS.md`.
//!
//! Fails if the cost of an operation grows faster than allowed. With `--test`, everything is smaller and faster.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

#[path = "../tests/limits/sizes.rs"]
mod sizes;

use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_conformance::Sim;
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, CachingAllocator, ContextsOf, MIB, Recording, Stream,
};
use accelerator_tracker::grouped;

use sizes::Sizes;

/// The number of blocks in the table of rare operations, and the maximum number for rare operations in the first table.
const MANY: usize = 100_000;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--test");
    let counts: &[usize] = if quick { &[1_000, 10_000, MANY] } else { &[1_000, 10_000, MANY, 1_000_000] };
    let grown = growth(counts);
    cold_operations(if quick { 10_000 } else { MANY });
    let too_much = grown.iter().filter(|(_, factor, most)| factor > most).inspect(|(what, factor, most)| {
        eprintln!("{what}: the cost grew by a factor of {factor:.1}, but the limit is {most:.1}");
    });
    if too_much.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Creates a device with practically unlimited memory.
fn device() -> (&'static CachingAllocator<Sim>, [Stream<Sim>; 2]) {
    let accelerator = Accelerator::new(Sim::new(1 << 50), 0, AllocatorConfig::default()).expect("a simulated device");
    let streams = [(); 2].map(|()| accelerator.dedicated_stream(0).expect("a stream"));
    (accelerator.allocator(), streams)
}

type Blocks = Vec<Option<Allocation<Sim>>>;

fn allocate(allocator: &CachingAllocator<Sim>, size: NonZeroU64, stream: Stream<Sim>) -> Allocation<Sim> {
    allocator.allocate(size, stream).expect("memory")
}

fn free(allocator: &CachingAllocator<Sim>, block: Option<Allocation<Sim>>) {
    allocator.free(block.expect("a block")).expect("its own allocation");
}

/// A column of the table: an operation, and its cost.
struct Column {
    what: &'static str,
    /// Returns the cost of a call in nanoseconds, given the number of blocks.
    cost: fn(usize) -> f64,
    /// The maximum number of blocks for this column.
    most: usize,
}

/// Prints a table of costs by the number of blocks. Returns, for each operation, the factor by which the cost grew, and
/// the maximum factor.
///
/// With a thousand times as many blocks, a tree is twice as high, and the processor's caches miss. Growth with the
/// square root of the number would be a factor of 32. A factor below that excludes a linear search.
fn growth(counts: &[usize]) -> Vec<(&'static str, f64, f64)> {
    const COLUMNS: [Column; 3] = [
        Column { what: "replace one of random size", cost: replacements, most: usize::MAX },
        Column { what: "free and allocate, all of one size in random order", cost: equal_blocks, most: usize::MAX },
        Column { what: "`empty_cache`, for each segment", cost: segments_given_back, most: MANY },
    ];
    println!("| blocks |{}", COLUMNS.map(|column| format!(" {} |", column.what)).concat());
    println!("|---|---|---|---|");
    let mut columns = [const { Vec::new() }; COLUMNS.len()];
    for count in counts {
        print!("| {} |", grouped(*count as u64));
        for (Column { cost, most, .. }, column) in COLUMNS.iter().zip(&mut columns) {
            if count <= most {
                let cost = cost(*count);
                column.push((*count as f64, cost));
                print!(" {cost:.0} ns |");
            } else {
                print!(" – |");
            }
        }
        println!();
    }
    let grown = columns.map(|column| {
        let ((fewest, first), (most, last)) = (column[0], column[column.len() - 1]);
        (last / first, (most / fewest).sqrt())
    });
    println!("| grown |{}\n", grown.map(|(factor, _)| format!(" {factor:.1}× |")).concat());
    COLUMNS.iter().zip(grown).map(|(column, (factor, most))| (column.what, factor, most)).collect()
}

/// Measures the replacement of one of `count` live blocks of 512 B to 128 KiB.
fn replacements(count: usize) -> f64 {
    const OPERATIONS: usize = 20_000;
    let ((allocator, [stream, _]), mut sizes) = (device(), Sizes::new());
    let mut blocks: Blocks = (0..count).map(|_| Some(allocate(allocator, sizes.size(9, 8), stream))).collect();
    let mut replace = |operations: usize| {
        for _ in 0..operations {
            let slot = &mut blocks[sizes.below(count)];
            free(allocator, slot.take());
            *slot = Some(allocate(allocator, sizes.size(9, 8), stream));
        }
    };
    replace(count.max(OPERATIONS));
    least((0..10).map(|_| timed(|| replace(OPERATIONS)))) / OPERATIONS as f64
}

/// Measures freeing and allocating every other one of `count` equal blocks, in random order. So no blocks merge, and
/// half of the blocks are free and of equal size, which is the worst case for sorted lists.
fn equal_blocks(count: usize) -> f64 {
    let ((allocator, [stream, _]), mut sizes) = (device(), Sizes::new());
    let size = NonZeroU64::new(512).expect("not 0");
    let mut blocks: Blocks = (0..count).map(|_| Some(allocate(allocator, size, stream))).collect();
    let mut order: Vec<usize> = (0..count).step_by(2).collect();
    (1..order.len()).rev().for_each(|last| order.swap(last, sizes.below(last + 1)));
    let lap = || {
        timed(|| order.iter().for_each(|index| free(allocator, blocks[*index].take())))
            + timed(|| order.iter().for_each(|index| blocks[*index] = Some(allocate(allocator, size, stream))))
    };
    let laps = (200_000 / count).clamp(4, 50);
    least(std::iter::repeat_with(lap).take(laps)) / order.len() as f64
}

/// Measures giving back `count` free segments to the driver.
fn segments_given_back(count: usize) -> f64 {
    let lap = || {
        let (allocator, [stream, _]) = device();
        free_segments(allocator, stream, count);
        timed(|| allocator.empty_cache().expect("nothing is pending"))
    };
    least(std::iter::repeat_with(lap).take(2)) / count as f64
}

/// Prints how long rare operations take with many blocks, and how long they delay a thread on another stream.
fn cold_operations(count: usize) {
    println!("| with {} blocks | takes | a pair of another thread takes at most |", grouped(count as u64));
    println!("|---|---|---|");
    row("nothing, for 10 ms", count, allocated, |_| thread::sleep(Duration::from_millis(10)));
    row("`statistics`", count, allocated, |allocator| _ = black_box(allocator.statistics()));
    row("`snapshot`", count, allocated, |allocator| _ = black_box(allocator.snapshot()));
    row("`history`, as many entries", count, recorded, |allocator| _ = black_box(allocator.history()));
    row("`empty_cache`, nothing is free", count, allocated, |allocator| {
        allocator.empty_cache().expect("nothing is pending");
    });
    row("`empty_cache`, all are free segments", count, free_segments, |allocator| {
        allocator.empty_cache().expect("nothing is pending");
    });
}

fn row(
    what: &str,
    count: usize,
    prepare: fn(&'static CachingAllocator<Sim>, Stream<Sim>, usize),
    operation: fn(&'static CachingAllocator<Sim>),
) {
    let (mut took, mut held_up) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let (allocator, [stream, other]) = device();
        prepare(allocator, stream, count);
        let (took_now, held_up_now) = beside(allocator, other, || operation(allocator));
        took.push(took_now);
        held_up.push(held_up_now);
    }
    println!("| {what} | {} | {} |", shown(median(took)), shown(median(held_up)));
}

/// Makes blocks of random sizes. Every tenth is free, the others are allocated.
fn allocated(allocator: &'static CachingAllocator<Sim>, stream: Stream<Sim>, count: usize) {
    let mut sizes = Sizes::new();
    let mut blocks: Blocks = (0..count).map(|_| Some(allocate(allocator, sizes.size(9, 8), stream))).collect();
    blocks.iter_mut().step_by(10).for_each(|block| free(allocator, block.take()));
}

fn recorded(allocator: &'static CachingAllocator<Sim>, stream: Stream<Sim>, count: usize) {
    let recording = Recording { contexts: ContextsOf::State, max_entries: count, capture: None };
    allocator.record_history(Some(recording));
    allocated(allocator, stream, count);
}

/// Makes free blocks, each in its own segment.
fn free_segments(allocator: &'static CachingAllocator<Sim>, stream: Stream<Sim>, count: usize) {
    let size = NonZeroU64::new(10 * MIB).expect("not 0");
    let blocks: Blocks = (0..count).map(|_| Some(allocate(allocator, size, stream))).collect();
    assert_eq!(allocator.statistics().segment.all.current, count as i64);
    blocks.into_iter().for_each(|block| free(allocator, block));
}

/// Runs an operation while another thread allocates and frees on its stream. Returns the duration of the operation and
/// of the other thread's longest pair, in nanoseconds.
fn beside(allocator: &'static CachingAllocator<Sim>, stream: Stream<Sim>, operation: impl FnOnce()) -> (f64, f64) {
    let (stop, longest, pairs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let size = NonZeroU64::new(512).expect("not 0");
            while !stop.load(Ordering::Relaxed) {
                let took = timed(|| free(allocator, Some(allocate(allocator, size, stream))));
                longest.fetch_max(took as u64, Ordering::Relaxed);
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more_pairs = |count: u64| {
            let target = pairs.load(Ordering::Relaxed) + count;
            while pairs.load(Ordering::Relaxed) < target {
                thread::yield_now();
            }
        };
        more_pairs(10_000);
        longest.store(0, Ordering::Relaxed);
        let took = timed(operation);
        more_pairs(2); // the delayed pair has ended
        stop.store(true, Ordering::Relaxed);
        (took, longest.load(Ordering::Relaxed) as f64)
    })
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Returns the minimum, which on a shared machine is closest to the true duration.
fn least(times: impl IntoIterator<Item = f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the median. The minimum could come from a run in which the other thread was not scheduled.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn shown(nanoseconds: f64) -> String {
    match nanoseconds {
        ..1e3 => format!("{nanoseconds:.0} ns"),
        1e3..1e6 => format!("{:.1} µs", nanoseconds / 1e3),
        _ => format!("{:.1} ms", nanoseconds / 1e6),
    }
}
