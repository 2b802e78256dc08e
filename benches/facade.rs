//! Calls through the facade, on each backend that finds a device: streams, guards, buffers, events, statistics, copies.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

use std::hint::black_box;

use accelerator::{
    BackendStatus, Buffer, DeviceIndexGuard, Event, Result, Stream, StreamGuard, backends, current_stream, memory,
    set_accelerator,
};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn facade(criterion: &mut Criterion) {
    for BackendStatus { kind, devices } in backends() {
        match devices {
            Ok(_) => on(criterion, kind.name()).expect("a device that works"),
            Err(why) => eprintln!("facade/{kind} is skipped, since it is not available: {why}"),
        }
    }
}

fn on(criterion: &mut Criterion, backend: &str) -> Result<()> {
    set_accelerator(backend)?;
    let side = Stream::new(None)?;

    let mut group = criterion.benchmark_group(format!("facade/{backend}"));
    call(&mut group, "current stream", || current_stream(None));
    call(&mut group, "device guard", || DeviceIndexGuard::new(black_box(Some(0))));
    call(&mut group, "stream guard", || StreamGuard::new(black_box(&side)));
    for (size, bytes) in [("512 B", 512), ("4 MiB", 4 << 20)] {
        let host = vec![1u8; bytes];
        call(&mut group, &format!("allocate, drop/{size}"), || Buffer::allocate(black_box(bytes as u64), None));
        call(&mut group, &format!("create from bytes, drop/{size}"), || Buffer::from_slice(&host, None));
    }
    events(&mut group, &side)?;
    call(&mut group, "memory_stats", || memory::memory_stats(None));
    group.finish();

    let mut group = criterion.benchmark_group(format!("facade/{backend}/copy"));
    for (size, bytes) in [("4 KiB", 4 << 10), ("16 MiB", 16 << 20)] {
        group.throughput(Throughput::Bytes(bytes as u64));
        copies(&mut group, size, bytes)?;
    }
    group.finish();
    memory::empty_cache()
}

fn events(group: &mut Group, stream: &Stream) -> Result<()> {
    let [start, end] = [(); 2].map(|()| Event::with_flags(accelerator::EventFlags::TIMING));
    group.bench_function("event/record", |bencher| {
        // Limits the number of pending records, since the stream may be slower than the calls.
        let caught_up = || stream.synchronize().expect("the stream");
        let record = |()| start.record(Some(stream)).expect("its own device");
        bencher.iter_batched(caught_up, record, BatchSize::NumIterations(256));
    });
    start.record(Some(stream))?;
    end.record(Some(stream))?;
    end.synchronize()?;
    call(group, "event/query", || end.query());
    call(group, "event/elapsed", || start.elapsed_time(&end));
    Ok(())
}

/// Measures each copy until the bytes have arrived.
fn copies(group: &mut Group, size: &str, bytes: usize) -> Result<()> {
    let (mut host, stream) = (vec![1u8; bytes], current_stream(None)?);
    let (mut first, mut second) = (Buffer::from_slice(&host, None)?, Buffer::from_slice(&host, None)?);
    call(group, &format!("host to device/{size}"), || first.write(0, &host));
    call(group, &format!("device to host/{size}"), || first.read(0, &mut host));
    call(group, &format!("within the device/{size}"), || {
        second.copy_from(&first)?;
        stream.synchronize()
    });
    Ok(())
}

/// Measures a call, including the drop of its result.
fn call<T>(group: &mut Group, name: &str, mut call: impl FnMut() -> Result<T>) {
    group.bench_function(name, |bencher| bencher.iter(|| drop(black_box(call().expect("no failure")))));
}

criterion_group!(benches, facade);
criterion_main!(benches);
