//! What a program calls through the facade, on the host: buffers, guards, streams, events, statistics.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at what should not happen")]

use std::hint::black_box;

use accelerator::{Buffer, DeviceIndexGuard, Event, Stream, current_stream, memory};
use criterion::{Criterion, criterion_group, criterion_main};

fn facade(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("facade/host");
    for (label, bytes) in [("512 B", 512), ("4 MiB", 4 << 20)] {
        group.bench_function(format!("buffer/{label}"), |bencher| {
            bencher.iter(|| Buffer::allocate(black_box(bytes), None).expect("memory"));
        });
    }
    group.bench_function("guard", |bencher| {
        bencher.iter(|| DeviceIndexGuard::new(black_box(Some(0))).expect("device 0"));
    });
    group.bench_function("current stream", |bencher| {
        bencher.iter(|| current_stream(None).expect("a stream"));
    });
    let stream = Stream::new(None, 0).expect("a stream");
    group.bench_function("event", |bencher| {
        bencher.iter(|| {
            let event = Event::new(false);
            event.record(Some(&stream)).expect("its own device");
            event.synchronize().expect("the event");
        });
    });
    let mut buffer = Buffer::allocate(1 << 20, None).expect("memory");
    let mut bytes = vec![1; 1 << 20];
    group.bench_function("copy/1 MiB there and back", |bencher| {
        bencher.iter(|| {
            buffer.write(0, &bytes).expect("the copy");
            buffer.read(0, &mut bytes).expect("the copy");
        });
    });
    group.bench_function("memory_stats", |bencher| {
        bencher.iter(|| black_box(memory::memory_stats(None).expect("statistics")));
    });
    group.finish();
}

criterion_group!(benches, facade);
criterion_main!(benches);
