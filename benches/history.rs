//! The cost of recording the history: a warm pair of 512 B, which makes three entries, without and with recording.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

use std::hint::black_box;
use std::num::NonZeroU64;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};
use accelerator_tracker::history::{ContextsOf, HistoryOptions, Stacks};
use accelerator_tracker::tracker::scope;
use criterion::{Criterion, criterion_group, criterion_main};

fn history(criterion: &mut Criterion) {
    let accelerator = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).expect("a device");
    let (allocator, stream) = (accelerator.allocator(), accelerator.default_stream());
    let bytes = NonZeroU64::new(512).expect("not 0");
    let pair = || {
        let allocation = allocator.allocate(black_box(bytes), stream).expect("memory");
        allocator.free(allocation).expect("its own allocation");
    };
    let options = |stacks| HistoryOptions { contexts: ContextsOf::All, max_entries: 100_000, stacks };
    let mut group = criterion.benchmark_group("history");
    group.bench_function("off", |bencher| bencher.iter(pair));
    allocator.record_history(Some(options(Stacks::None).recording()));
    group.bench_function("without stacks", |bencher| bencher.iter(pair));
    let module = scope("layers.3.forward");
    group.bench_function("in a scope", |bencher| bencher.iter(pair));
    drop(module);
    allocator.record_history(Some(options(Stacks::Rust).recording()));
    group.bench_function("with stacks", |bencher| bencher.iter(pair));
    group.finish();
}

criterion_group!(benches, history);
criterion_main!(benches);
