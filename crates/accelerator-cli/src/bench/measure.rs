use std::thread;
use std::time::Duration;

use accelerator_core::{Backend, CachingAllocator, Result};

use super::figures::{Figures, Spread};
use super::scenario::Scenario;
use super::start_line::StartLine;
use super::threads::Threads;
use super::worker::Worker;
use crate::failure::Failure;

/// The number of operations in the first lap. Every lap is a multiple of it, so that `lifo` runs whole rounds.
const UNIT: u64 = 64;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The number of repetitions, at least 1.
    pub(crate) repetitions: u32,
    /// The approximate duration of a repetition.
    pub(crate) length: Duration,
}

/// Runs the workers repeatedly, each on a thread of its own.
pub(super) fn measure<B: Backend>(
    scenario: Scenario,
    workers: &mut [Worker<B>],
    effort: Effort,
    allocator: &CachingAllocator<B>,
) -> Result<Figures, Failure> {
    let (line, count) = (StartLine::new(), workers.len());
    thread::scope(|scope| {
        let threads = Threads::start(scope, &line, workers)?;
        let ops = ops_for(effort.length, &threads)?;
        let before = allocator.statistics().num_device_alloc;
        let laps = (0..effort.repetitions).map(|_| threads.lap(ops)).collect::<Result<Vec<_>>>()?;
        let device_allocs = allocator.statistics().num_device_alloc - before;
        threads.finish()?;
        let cpu: Option<Vec<f64>> = laps.iter().map(|lap| Some(per(lap.cpu?, lap.ops))).collect();
        Ok(Figures {
            scenario,
            threads: count,
            wall: Spread::of(laps.iter().map(|lap| per(lap.wall, lap.ops)).collect()),
            cpu: cpu.map(Spread::of),
            device_allocs,
            ops: ops * count as u64,
        })
    })
}

/// Returns how many operations a thread runs in about `length`. Runs longer and longer laps until one takes half of
/// `length`.
fn ops_for(length: Duration, threads: &Threads<'_>) -> Result<u64> {
    let mut ops = UNIT;
    loop {
        let wall = threads.lap(ops)?.wall;
        if wall >= length / 2 {
            let fitting = ops as f64 * length.as_secs_f64() / wall.as_secs_f64();
            return Ok((fitting as u64).next_multiple_of(UNIT).max(UNIT));
        }
        ops *= 2;
    }
}

fn per(time: Duration, ops: u64) -> f64 {
    time.as_nanos() as f64 / ops as f64
}
