//! Peaks are peaks of the sum over all threads. If barriers order the threads' operations, a model with a single
//! counter per quantity gives the exact peaks.

use std::num::NonZeroU64;
use std::sync::{Barrier, Mutex};
use std::thread;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, GIB, MIB, PoolStat, Stat, Statistics, Stream};
use fastrand::Rng;

use super::relations::check_relations;

/// Allocated blocks and their bytes, active blocks and their bytes, and the requested bytes of active blocks.
type Amounts = [i64; 5];

/// The change that a call makes to the amounts of one pool.
#[derive(Clone, Copy, Debug)]
struct Change {
    small: bool,
    amounts: Amounts,
}

/// The amounts of both pools, of the small pool and of the large pool.
#[derive(Debug, Default)]
struct Model {
    now: [Amounts; 3],
    peak: [Amounts; 3],
}

impl Model {
    fn apply(&mut self, change: Change) {
        for pool in [0, if change.small { 1 } else { 2 }] {
            for (index, amount) in change.amounts.into_iter().enumerate() {
                let now = &mut self.now[pool][index];
                *now += amount;
                self.peak[pool][index] = self.peak[pool][index].max(*now);
            }
        }
    }

    fn check(&self, statistics: &Statistics, step: &str) {
        let of = |value: fn(&Stat) -> i64| {
            let Statistics { allocation, allocated_bytes, active, active_bytes, requested_bytes, .. } = statistics;
            let stats = [allocation, allocated_bytes, active, active_bytes, requested_bytes];
            let pools = |stat: &PoolStat| [&stat.all, &stat.small_pool, &stat.large_pool].map(value);
            [0, 1, 2].map(|pool| stats.map(|stat| pools(stat)[pool]))
        };
        assert_eq!(of(|stat| stat.current), self.now, "current amounts after {step}");
        assert_eq!(of(|stat| stat.peak), self.peak, "peaks after {step}");
        check_relations(statistics);
    }
}

/// A thread with its stream and its blocks. Some of its freed blocks were used by another stream, `user`, whose work is
/// held back.
struct Worker {
    accelerator: &'static Accelerator<Sim>,
    stream: Stream<Sim>,
    user: Stream<Sim>,
    random: Rng,
    blocks: Vec<Allocation<Sim>>,
}

impl Worker {
    fn new(accelerator: &'static Accelerator<Sim>, number: u64, user: Stream<Sim>) -> Self {
        let stream = accelerator.dedicated_stream(0).unwrap();
        Self { accelerator, stream, user, random: Rng::with_seed(number), blocks: Vec::new() }
    }

    fn allocate(&mut self) -> Change {
        let most = [2048, MIB, 8 * MIB][self.random.usize(..3)];
        let bytes = NonZeroU64::MIN.saturating_add(self.random.u64(..most));
        let block = self.accelerator.allocator().allocate(bytes, self.stream).unwrap();
        let (size, requested) = (block.size() as i64, bytes.get() as i64);
        self.blocks.push(block);
        Change { small: bytes.get() <= MIB, amounts: [1, size, 1, size, requested] }
    }

    /// Frees a block, which stays active if it was used. Returns the immediate change and the later one.
    fn free(&mut self, used: bool) -> Option<(Change, Option<Change>)> {
        let chosen = self.random.usize(..self.blocks.len().max(1));
        let block = (chosen < self.blocks.len()).then(|| self.blocks.swap_remove(chosen))?;
        let (size, requested) = (block.size() as i64, block.requested().get() as i64);
        let small = requested <= MIB as i64;
        if used {
            self.accelerator.allocator().record_use(&block, self.user).unwrap();
        }
        self.accelerator.allocator().free(block).unwrap();
        Some(match used {
            false => (Change { small, amounts: [-1, -size, -1, -size, -requested] }, None),
            true => (
                Change { small, amounts: [-1, -size, 0, 0, 0] },
                Some(Change { small, amounts: [0, 0, -1, -size, -requested] }),
            ),
        })
    }
}

fn device() -> (&'static Accelerator<Sim>, Stream<Sim>) {
    let accelerator = Accelerator::new(Sim::new(1024 * GIB), 0, AllocatorConfig::default()).unwrap();
    let user = accelerator.dedicated_stream(0).unwrap();
    accelerator.backend().hold(user.native());
    (accelerator, user)
}

/// Each thread has its own stream. At the barrier, both threads have all their blocks.
#[test]
fn the_peak_of_two_threads_is_the_sum_of_both() {
    const BLOCKS: usize = 300;
    let (accelerator, user) = device();
    let mut workers = [0, 1].map(|number| Worker::new(accelerator, number, user));
    for round in 0..30 {
        let (all_there, looked) = (Barrier::new(3), Barrier::new(3));
        let sums = Mutex::new(Model::default());
        thread::scope(|scope| {
            for worker in &mut workers {
                let (all_there, looked, sums) = (&all_there, &looked, &sums);
                scope.spawn(move || {
                    let changes: Vec<_> = (0..BLOCKS).map(|_| worker.allocate()).collect();
                    changes.into_iter().for_each(|change| sums.lock().unwrap().apply(change));
                    all_there.wait();
                    looked.wait();
                    while worker.free(false).is_some() {}
                });
            }
            all_there.wait();
            let statistics = accelerator.allocator().statistics();
            // Reached before the check, so that a failure does not leave the other threads at the barrier.
            looked.wait();
            sums.lock().unwrap().check(&statistics, &format!("round {round}"));
        });
        let sums = sums.into_inner().unwrap();
        let allocation = accelerator.allocator().statistics().allocation.all;
        assert_eq!((allocation.current, allocation.peak), (0, sums.peak[0][0]), "frees move no peak");
        accelerator.allocator().reset_peak_statistics();
    }
}

/// What all threads do between two barriers. Each step determines the peaks: either all threads only allocate, all only
/// free, or one thread does both while the others are idle.
#[derive(Clone, Copy, Debug)]
enum Step {
    AllAllocate(u64),
    AllFree(u64),
    One(u64),
    /// The held stream finishes all uses.
    Drain,
    ResetPeaks,
}

impl Step {
    fn choose(random: &mut Rng, threads: u64) -> Self {
        match random.u64(..20) {
            0..7 => Self::AllAllocate(1 + random.u64(..20)),
            7..13 => Self::AllFree(1 + random.u64(..20)),
            13..18 => Self::One(random.u64(..threads)),
            18 => Self::Drain,
            _ => Self::ResetPeaks,
        }
    }
}

/// The model, and the changes due when the blocks in use become free.
#[derive(Default)]
struct Shared {
    model: Model,
    later: Vec<Change>,
}

impl Worker {
    /// Executes this thread's part of a step. The model is updated at the end, so that threads do not synchronize
    /// earlier.
    fn take_part(&mut self, number: u64, step: Step, shared: &Mutex<Shared>) {
        let (mut changes, mut later) = (Vec::new(), Vec::new());
        let mut free = |worker: &mut Self| {
            let used = worker.random.u64(..4) == 0;
            let Some((now, then)) = worker.free(used) else { return Vec::new() };
            later.extend(then);
            vec![now]
        };
        match step {
            Step::AllAllocate(count) => changes.extend((0..count).map(|_| self.allocate())),
            Step::AllFree(count) => (0..count).for_each(|_| changes.extend(free(self))),
            Step::One(one) if one == number => {
                for _ in 0..60 {
                    match self.random.u64(..2) {
                        0 => changes.push(self.allocate()),
                        _ => changes.extend(free(self)),
                    }
                }
            }
            Step::Drain if number == 0 => {
                let backend = self.accelerator.backend();
                backend.release(self.user.native());
                self.accelerator.allocator().empty_cache().unwrap();
                backend.hold(self.user.native());
                changes.append(&mut shared.lock().unwrap().later);
            }
            Step::ResetPeaks if number == 0 => {
                self.accelerator.allocator().reset_peak_statistics();
                let model = &mut shared.lock().unwrap().model;
                model.peak = model.now;
            }
            Step::One(_) | Step::Drain | Step::ResetPeaks => {}
        }
        let mut shared = shared.lock().unwrap();
        changes.into_iter().for_each(|change| shared.model.apply(change));
        shared.later.append(&mut later);
    }
}

#[test]
fn peaks_are_exact_wherever_barriers_order_what_threads_do() {
    const THREADS: u64 = 4;
    const STEPS: usize = 1500;
    let (accelerator, user) = device();
    let mut random = Rng::with_seed(7);
    let steps: Vec<Step> = (0..STEPS).map(|_| Step::choose(&mut random, THREADS)).collect();
    let shared = Mutex::new(Shared::default());
    let (done, go_on) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    let mut looked = Vec::new();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (steps, shared, done, go_on) = (&steps, &shared, &done, &go_on);
            scope.spawn(move || {
                let mut worker = Worker::new(accelerator, number, user);
                for step in steps {
                    worker.take_part(number, *step, shared);
                    done.wait();
                    go_on.wait();
                }
            });
        }
        for (number, step) in steps.iter().enumerate() {
            done.wait();
            // Not after every step, because reading the statistics could itself reveal a missed peak.
            if random.u64(..8) == 0 {
                let statistics = accelerator.allocator().statistics();
                let Model { now, peak } = shared.lock().unwrap().model;
                // Compared at the end, because a panic here would leave the other threads at the barrier.
                looked.push((number, *step, statistics, Model { now, peak }));
            }
            go_on.wait();
        }
    });
    for (number, step, statistics, model) in &looked {
        model.check(statistics, &format!("step {number}, {step:?}"));
    }
}
