//! Allocates and frees through the core: warm, from the cache, and cold, from the driver.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

use std::hint::black_box;
use std::num::NonZeroU64;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, KIB, MIB};
use accelerator_host::Host;
use criterion::{Criterion, criterion_group, criterion_main};

fn allocator(criterion: &mut Criterion) {
    on(criterion, "sim", Sim::default());
    on(criterion, "host", Host::new(0, 16 << 30));
}

fn on<B: Backend>(criterion: &mut Criterion, name: &str, backend: B) {
    let accelerator = Accelerator::new(backend, 0, AllocatorConfig::default()).expect("a device");
    let allocator = accelerator.allocator();
    let (stream, other) = (accelerator.default_stream(), accelerator.stream(0).expect("a stream"));
    let pair = |bytes: NonZeroU64| {
        let allocation = allocator.allocate(black_box(bytes), stream).expect("memory");
        allocator.free(allocation).expect("its own allocation");
    };
    let mut group = criterion.benchmark_group(format!("core/{name}"));
    for (label, bytes) in [("512 B", 512), ("256 KiB", 256 * KIB), ("4 MiB", 4 * MIB), ("64 MiB", 64 * MIB)] {
        let bytes = NonZeroU64::new(bytes).expect("not 0");
        group.bench_function(format!("warm/{label}"), |bencher| bencher.iter(|| pair(bytes)));
    }
    let small = NonZeroU64::MIN;
    group.bench_function("cold/2 MiB segment", |bencher| {
        bencher.iter(|| {
            pair(small);
            allocator.empty_cache().expect("nothing is pending");
        });
    });
    group.bench_function("warm/used by a second stream", |bencher| {
        bencher.iter(|| {
            let allocation = allocator.allocate(small, stream).expect("memory");
            allocator.record_use(&allocation, other).expect("its own stream");
            allocator.free(allocation).expect("its own allocation");
        });
    });
    group.bench_function("statistics", |bencher| bencher.iter(|| black_box(allocator.statistics())));
    group.finish();
}

criterion_group!(benches, allocator);
criterion_main!(benches);
