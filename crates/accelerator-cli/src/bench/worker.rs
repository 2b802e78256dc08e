use std::hint::black_box;
use std::num::NonZeroU64;

use accelerator_core::{Allocation, Backend, CachingAllocator, Result, Stream};

use super::generator::Generator;
use super::scenario::Scenario;

const SMALL: NonZeroU64 = NonZeroU64::new(512).unwrap();
const LARGE: NonZeroU64 = NonZeroU64::new(4 << 20).unwrap();
/// The stack depth of `lifo`.
const DEPTH: usize = 64;
/// The number of live blocks in `random`.
const LIVE: usize = 4096;

type Slots<B, const COUNT: usize> = [Option<Allocation<B>>; COUNT];

/// One thread's share of a scenario.
///
/// Constant sizes pass through `black_box`: PyTorch's allocator does not know them at compile time, so this one must
/// not either.
#[repr(align(128))] // threads must not write to the same cache line
pub(super) struct Worker<B: Backend> {
    scenario: Scenario,
    allocator: &'static CachingAllocator<B>,
    stream: Stream<B>,
    other: Stream<B>,
    generator: Generator,
    live: Box<Slots<B, LIVE>>,
}

impl<B: Backend> Worker<B> {
    pub(super) fn new(
        scenario: Scenario,
        thread: usize,
        allocator: &'static CachingAllocator<B>,
        stream: Stream<B>,
        other: Stream<B>,
    ) -> Self {
        let (generator, live) = (Generator::of_thread(thread as u64), Box::new([const { None }; LIVE]));
        Self { scenario, allocator, stream, other, generator, live }
    }

    /// Fills the cache, so that all later operations behave the same.
    pub(super) fn warm_up(&mut self) -> Result<u64> {
        self.fill()?;
        self.run(match self.scenario {
            Scenario::Lifo => 2000 * DEPTH as u64,
            Scenario::Random => 400_000,
            Scenario::Stats => 1000,
            Scenario::Small | Scenario::Large | Scenario::Xstream | Scenario::Shared => 10_000,
        })
    }

    /// Allocates the blocks that are live when the operations start.
    pub(super) fn fill(&mut self) -> Result<()> {
        if self.scenario == Scenario::Random {
            for slot in self.live.iter_mut() {
                *slot = Some(self.allocator.allocate(self.generator.size(9, 16), self.stream)?);
            }
        }
        Ok(())
    }

    /// Frees the live blocks. Returns how many there were.
    pub(super) fn finish(&mut self) -> Result<u64> {
        let mut freed = 0;
        for block in self.live.iter_mut().filter_map(Option::take) {
            self.allocator.free(block)?;
            freed += 1;
        }
        Ok(freed)
    }

    /// Runs operations. Returns how many it ran, since `lifo` runs whole rounds.
    pub(super) fn run(&mut self, ops: u64) -> Result<u64> {
        match self.scenario {
            Scenario::Small | Scenario::Shared => self.pairs(SMALL, ops),
            Scenario::Large => self.pairs(LARGE, ops),
            Scenario::Lifo => self.rounds(ops.div_ceil(DEPTH as u64)),
            Scenario::Random => self.replacements(ops),
            Scenario::Xstream => self.triples(ops),
            Scenario::Stats => self.readings(ops),
        }
    }

    fn pairs(&self, size: NonZeroU64, ops: u64) -> Result<u64> {
        for _ in 0..ops {
            let block = self.allocator.allocate(black_box(size), self.stream)?;
            self.allocator.free(block)?;
        }
        Ok(ops)
    }

    fn rounds(&mut self, rounds: u64) -> Result<u64> {
        let mut stack: Slots<B, DEPTH> = [const { None }; DEPTH];
        for _ in 0..rounds {
            for slot in &mut stack {
                *slot = Some(self.allocator.allocate(self.generator.size(9, 17), self.stream)?);
            }
            for slot in stack.iter_mut().rev() {
                if let Some(block) = slot.take() {
                    self.allocator.free(block)?;
                }
            }
        }
        Ok(rounds * DEPTH as u64)
    }

    fn replacements(&mut self, ops: u64) -> Result<u64> {
        for _ in 0..ops {
            let slot = &mut self.live[(self.generator.draw() >> 32) as usize % LIVE];
            if let Some(block) = slot.take() {
                self.allocator.free(block)?;
            }
            *slot = Some(self.allocator.allocate(self.generator.size(9, 16), self.stream)?);
        }
        Ok(ops)
    }

    fn triples(&self, ops: u64) -> Result<u64> {
        for _ in 0..ops {
            let block = self.allocator.allocate(black_box(SMALL), self.stream)?;
            self.allocator.record_use(&block, self.other)?;
            self.allocator.free(block)?;
        }
        Ok(ops)
    }

    fn readings(&self, ops: u64) -> Result<u64> {
        for _ in 0..ops {
            black_box(&self.allocator.statistics());
        }
        Ok(ops)
    }
}

#[cfg(test)]
mod tests {
    use accelerator_conformance::{Call, Controls, Sim};
    use accelerator_core::{
        Accelerator, AllocatorConfig, ContextsOf, HistoryAction, MIB, Recording, Statistics, TraceAction,
    };
    use clap::ValueEnum;

    use super::super::generator::known::{Draw, draws};
    use super::*;

    fn worker(scenario: Scenario) -> (&'static Accelerator<Sim>, Worker<Sim>) {
        let accelerator = Accelerator::new(Sim::new(1 << 40), 0, AllocatorConfig::default()).unwrap();
        let [stream, other] = [(); 2].map(|()| accelerator.dedicated_stream(0).unwrap());
        (accelerator, Worker::new(scenario, 0, accelerator.allocator(), stream, other))
    }

    /// Returns the requested bytes of each slot.
    fn sizes(worker: &Worker<Sim>) -> Vec<u64> {
        worker.live.iter().flatten().map(|block| block.requested().get()).collect()
    }

    #[test]
    fn random_replaces_the_slots_that_pytorchs_side_does() {
        let (accelerator, mut worker) = worker(Scenario::Random);
        worker.fill().unwrap();
        let [first, later] = draws();
        let mut expected = sizes(&worker);
        assert_eq!(expected[..64], first.iter().map(|draw| draw.size_of_16).collect::<Vec<_>>());
        for step in later.chunks_exact(2) {
            let [Draw { value, .. }, Draw { size_of_16, .. }] = *step else { unreachable!("two draws a step") };
            worker.run(1).unwrap();
            expected[(value >> 32) as usize % 4096] = size_of_16;
            assert!(sizes(&worker) == expected, "slot {} must have {size_of_16} bytes", (value >> 32) % 4096);
        }
        let statistics = accelerator.allocator().statistics();
        assert_eq!(statistics.allocation.all.peak, 4096, "the old block is freed first");
        assert_eq!(worker.finish().unwrap(), 4096);
        assert_eq!(accelerator.allocator().statistics().allocation.all.current, 0);
    }

    #[test]
    fn lifo_frees_the_last_first() {
        let (accelerator, mut worker) = worker(Scenario::Lifo);
        let recording = Recording { max_entries: usize::MAX, contexts: ContextsOf::State, capture: None };
        accelerator.allocator().record_history(Some(recording));
        assert_eq!(worker.run(65).unwrap(), 128, "whole rounds");
        let entries = accelerator.allocator().history().entries;
        let of = |action: TraceAction| -> Vec<(u64, u64)> {
            let those = entries.iter().filter(|entry| entry.action == HistoryAction::Trace(action));
            those.map(|entry| (entry.address, entry.size)).collect()
        };
        let (allocated, mut freed) = (of(TraceAction::Alloc), of(TraceAction::FreeRequested));
        let sizes: Vec<u64> = allocated.iter().map(|(_, size)| *size).collect();
        let [first, _] = draws();
        assert_eq!(sizes[..64], first.iter().map(|draw| draw.size_of_17).collect::<Vec<_>>());
        assert_eq!(freed.len(), 128);
        freed[..64].reverse();
        freed[64..].reverse();
        assert_eq!(freed, allocated);
    }

    #[test]
    fn every_operation_is_one_of_the_allocators() {
        for scenario in Scenario::value_variants().iter().copied() {
            let (accelerator, mut worker) = worker(scenario);
            worker.fill().unwrap();
            let recorded = || accelerator.backend().calls().of(Call::Record);
            let (before, recorded_before) = (accelerator.allocator().statistics(), recorded());
            assert_eq!(worker.run(192).unwrap(), 192);
            let Statistics { allocation, requested_bytes, .. } = accelerator.allocator().statistics();
            let allocated = allocation.all.allocated - before.allocation.all.allocated;
            let freed = allocation.all.freed - before.allocation.all.freed;
            let bytes = requested_bytes.all.allocated - before.requested_bytes.all.allocated;
            let expected = if scenario == Scenario::Stats { 0 } else { 192 };
            assert_eq!((allocated, freed), (expected, expected), "{scenario}");
            match scenario {
                Scenario::Small | Scenario::Shared | Scenario::Xstream => assert_eq!(bytes, 192 * 512),
                Scenario::Large => assert_eq!(bytes, 192 * 4 * MIB as i64),
                Scenario::Lifo | Scenario::Random | Scenario::Stats => {}
            }
            let second_stream = if scenario == Scenario::Xstream { 192 } else { 0 };
            assert_eq!(recorded() - recorded_before, second_stream, "{scenario}");
        }
    }
}
