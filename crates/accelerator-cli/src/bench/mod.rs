//! The scenarios of `accel bench`. They run exactly the same operations as the benchmark of PyTorch's own allocator.
//!
//! Bottom up: [`generator`] draws the sizes, [`worker`] contains the loops of one thread, [`start_line`] and
//! [`threads`] start threads at the same time, [`measure`] repeats that, and [`figures`] formats the results.

mod cpu_time;
mod figures;
mod generator;
mod measure;
mod scenario;
mod start_line;
mod threads;
mod worker;

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Result, Stream};

pub(crate) use self::figures::{Figures, header};
pub(crate) use self::measure::Effort;
pub(crate) use self::scenario::Scenario;
use self::worker::Worker;
use crate::failure::Failure;

/// The memory of the simulated device, large enough that no scenario runs out of memory.
const CAPACITY: u64 = 1 << 40;

/// One device for all scenarios, with the streams created so far.
pub(crate) struct Bench<B: Backend> {
    accelerator: &'static Accelerator<B>,
    streams: Vec<Stream<B>>,
}

impl Bench<Sim> {
    /// Measures on the simulated device.
    pub(crate) fn simulated() -> Result<Self> {
        Accelerator::new(Sim::new(CAPACITY), 0, AllocatorConfig::default()).map(Self::on)
    }
}

impl<B: Backend> Bench<B> {
    pub(crate) fn on(accelerator: &'static Accelerator<B>) -> Self {
        Self { accelerator, streams: Vec::new() }
    }

    /// Changes the settings of the allocator.
    pub(crate) fn set_config(&self, config: AllocatorConfig) {
        self.accelerator.allocator().set_config(config);
    }

    /// Measures a scenario, and leaves the cache empty, even if the scenario fails.
    ///
    /// # Errors
    /// Errors of the allocator; [`Failure::Usage`] for more threads than the system can start.
    pub(crate) fn measure(&mut self, scenario: Scenario, threads: usize, effort: Effort) -> Result<Figures, Failure> {
        let mut workers = self.workers(scenario, threads)?;
        let figures = measure::measure(scenario, &mut workers, effort, self.accelerator.allocator());
        for worker in &mut workers {
            worker.finish()?;
        }
        self.accelerator.synchronize()?; // a stream may still use a block of `xstream`
        self.accelerator.allocator().empty_cache()?;
        figures
    }

    /// Runs operations on one thread, after a warm-up. Returns how many it ran, since `lifo` runs whole rounds.
    ///
    /// # Errors
    /// Errors of the allocator.
    pub(crate) fn count(&mut self, scenario: Scenario, ops: u64) -> Result<u64> {
        let mut done = 0;
        for worker in &mut self.workers(scenario, 1)? {
            worker.warm_up()?;
            done += counted(worker, ops)?;
        }
        Ok(done)
    }

    /// Creates one worker for each thread. Each has its own stream, unless all share one, and a second stream.
    fn workers(&mut self, scenario: Scenario, threads: usize) -> Result<Vec<Worker<B>>> {
        while self.streams.len() < 2 * threads {
            self.streams.push(self.accelerator.dedicated_stream(0)?);
        }
        let allocator = self.accelerator.allocator();
        let pairs = self.streams.chunks_exact(2).take(threads).enumerate();
        let workers = pairs.map(|(thread, pair)| {
            let first = if scenario == Scenario::Shared { self.streams[0] } else { pair[0] };
            Worker::new(scenario, thread, allocator, first, pair[1])
        });
        Ok(workers.collect())
    }
}

/// Runs the counted operations and nothing else. Keep its name: the help text passes it to callgrind.
#[inline(never)]
fn counted<B: Backend>(worker: &mut Worker<B>, ops: u64) -> Result<u64> {
    // Prevents a tail call, which would leave this function before the work starts.
    std::hint::black_box(worker.run(ops))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use accelerator_core::Error;

    use super::*;

    const SHORT: Effort = Effort { repetitions: 3, length: Duration::from_millis(10) };

    fn sized(capacity: u64) -> Bench<Sim> {
        let accelerator = Accelerator::new(Sim::new(capacity), 0, AllocatorConfig::default()).unwrap();
        Bench::on(accelerator)
    }

    #[test]
    fn as_many_operations_as_asked_for_follow_the_warm_up() {
        for (scenario, ops, done, allocated) in [
            (Scenario::Small, 100, 100, 10_000 + 100),
            (Scenario::Large, 100, 100, 10_000 + 100),
            (Scenario::Lifo, 100, 128, 2000 * 64 + 128),
            (Scenario::Random, 100, 100, 4096 + 400_000 + 100),
            (Scenario::Xstream, 1, 1, 10_000 + 1),
            (Scenario::Shared, 1, 1, 10_000 + 1),
            (Scenario::Stats, 100, 100, 0),
        ] {
            let mut bench = Bench::simulated().unwrap();
            assert_eq!(bench.count(scenario, ops).unwrap(), done);
            let statistics = bench.accelerator.allocator().statistics();
            assert_eq!(statistics.allocation.all.allocated, allocated, "{scenario}");
        }
    }

    #[test]
    fn a_measurement_counts_all_threads_and_leaves_nothing() {
        let mut bench = Bench::simulated().unwrap();
        for (scenario, threads) in [(Scenario::Random, 1), (Scenario::Small, 3)] {
            let mut measure = || bench.measure(scenario, threads, SHORT).unwrap();
            // If the machine pauses while the number of operations is being determined, the number is too low.
            let takes_so_long =
                |figures: &Figures| figures.wall.most * figures.ops as f64 > SHORT.length.as_nanos() as f64 / 5.0;
            let figures = (0..50).map(|_| measure()).find(takes_so_long).expect("takes so long");
            assert_eq!((figures.threads, figures.ops % (64 * threads as u64)), (threads, 0));
            assert!(figures.wall.least > 0.0 && figures.wall.least <= figures.wall.median);
            assert!(figures.cpu.unwrap().least > 0.0);
            let statistics = bench.accelerator.allocator().statistics();
            assert_eq!(statistics.allocation.all.current, 0);
            assert_eq!(statistics.reserved_bytes.all.current, 0);
            assert!(statistics.allocation.all.allocated as u64 >= figures.ops * 3);
        }
    }

    #[test]
    fn a_warm_cache_asks_the_driver_for_nothing() {
        let figures = Bench::simulated().unwrap().measure(Scenario::Small, 2, SHORT).unwrap();
        assert_eq!(figures.device_allocs, 0);
        // Without caching, each allocation calls the driver.
        let config = AllocatorConfig::default().updated("caching:False").unwrap();
        let accelerator = Accelerator::new(Sim::new(CAPACITY), 0, config).unwrap();
        let mut bench = Bench::on(accelerator);
        let figures = bench.measure(Scenario::Small, 2, SHORT).unwrap();
        assert_eq!(figures.device_allocs as u64, 3 * figures.ops);
    }

    #[test]
    fn threads_have_streams_of_their_own_unless_they_share_one() {
        for (scenario, streams) in [(Scenario::Small, 3), (Scenario::Shared, 1)] {
            let mut bench = Bench::simulated().unwrap();
            for mut worker in bench.workers(scenario, 3).unwrap() {
                worker.run(1).unwrap();
            }
            let segments = bench.accelerator.allocator().snapshot().segments;
            let used: BTreeSet<_> = segments.iter().map(|segment| segment.stream).collect();
            assert_eq!(used.len(), streams, "{scenario}");
        }
    }

    #[test]
    fn a_thread_that_fails_holds_up_no_other() {
        let (mut large, mut tiny) = (sized(CAPACITY), sized(1 << 20));
        let mut workers = large.workers(Scenario::Small, 2).unwrap();
        workers.extend(tiny.workers(Scenario::Small, 1).unwrap());
        workers.rotate_right(1);
        let allocator = large.accelerator.allocator();
        let error = measure::measure(Scenario::Small, &mut workers, SHORT, allocator).unwrap_err();
        assert!(matches!(error, Failure::Accelerator(Error::OutOfMemory(_))), "{error}");
    }
}
