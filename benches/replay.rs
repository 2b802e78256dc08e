//! Replays the whole bundled trace: a training run of GPT-2.
#![allow(clippy::expect_used, missing_docs, reason = "a benchmark stops at anything unexpected")]

use accelerator_cli::replay::Replayer;
use accelerator_cli::trace::{Line, Source};
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn replay(criterion: &mut Criterion) {
    let lines: Vec<Line> = Source::bundled().and_then(Iterator::collect).expect("the bundled trace");
    let mut group = criterion.benchmark_group("replay/sim");
    group.throughput(Throughput::Elements(lines.len() as u64)).sample_size(20);
    group.bench_function("gpt2_train", |bencher| {
        let replayer = || {
            let device = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).expect("a device");
            Replayer::new(device, false)
        };
        let run = |mut replayer: Replayer<Sim>| {
            for line in &lines {
                replayer.step(line).expect("a line of the trace");
            }
            replayer
        };
        bencher.iter_batched(replayer, run, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
