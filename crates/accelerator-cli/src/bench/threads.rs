use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use accelerator_core::{Backend, Result};

use super::cpu_time;
use super::start_line::{Open, StartLine};
use super::worker::Worker;
use crate::failure::Failure;

/// Warmed-up threads at the start line, each with its worker.
pub(super) struct Threads<'a> {
    line: Open<'a>,
    results: Vec<Receiver<Result<Run>>>,
}

/// The work of all threads between a start and the last finish.
pub(super) struct Lap {
    pub(super) ops: u64,
    pub(super) wall: Duration,
    /// The total CPU time of all threads.
    pub(super) cpu: Option<Duration>,
}

/// The work of one thread.
struct Run {
    ops: u64,
    begin: Instant,
    end: Instant,
    cpu: Option<Duration>,
}

impl<'a> Threads<'a> {
    /// Starts a thread for each worker, and waits until all are warmed up.
    ///
    /// # Errors
    /// [`Failure::Usage`] for more threads than the system can start; errors of the allocator.
    pub(super) fn start<'scope, B: Backend>(
        scope: &'scope Scope<'scope, '_>,
        line: &'scope StartLine,
        workers: &'scope mut [Worker<B>],
    ) -> Result<Self, Failure>
    where
        'scope: 'a,
    {
        let mut threads = Self { line: line.open(), results: Vec::new() };
        let wanted = workers.len();
        for worker in workers {
            let (sender, receiver) = channel();
            let started = Builder::new().spawn_scoped(scope, move || work(worker, line, &sender));
            started.map_err(|error| not_started(threads.results.len(), wanted, &error))?;
            threads.results.push(receiver);
        }
        runs(&threads.results)?; // wait for the warm-up
        Ok(threads)
    }

    /// Runs this many operations on each thread.
    ///
    /// # Errors
    /// Errors of the allocator.
    pub(super) fn lap(&self, ops: u64) -> Result<Lap> {
        self.line.start(ops);
        let runs = runs(&self.results)?;
        let (begin, end) = (runs.iter().map(|run| run.begin).min(), runs.iter().map(|run| run.end).max());
        Ok(Lap {
            ops: runs.iter().map(|run| run.ops).sum(),
            wall: begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin),
            cpu: runs.iter().map(|run| run.cpu).sum(),
        })
    }

    /// Ends the laps. Each thread frees its live blocks.
    ///
    /// # Errors
    /// Errors of the allocator.
    pub(super) fn finish(self) -> Result<()> {
        let Self { line, results } = self;
        drop(line);
        runs(&results).map(drop)
    }
}

/// Waits for the next result of each thread.
fn runs(results: &[Receiver<Result<Run>>]) -> Result<Vec<Run>> {
    let received = results.iter().map(|results| {
        // A thread without a result has panicked and printed why. The panic continues here.
        results.recv().unwrap_or_else(|gone| resume_unwind(Box::new(gone)))
    });
    received.collect()
}

/// Works until the last lap, or until the receiver is gone because another thread failed.
fn work<B: Backend>(
    worker: &mut Worker<B>,
    line: &StartLine,
    results: &Sender<Result<Run>>,
) -> Result<(), SendError<Result<Run>>> {
    results.send(timed(|| worker.warm_up()))?;
    for lap in 1.. {
        let Some(ops) = line.wait(lap) else { break };
        results.send(timed(|| worker.run(ops)))?;
    }
    results.send(timed(|| worker.finish()))
}

fn timed(operations: impl FnOnce() -> Result<u64>) -> Result<Run> {
    let before = cpu_time::of_this_thread();
    let begin = Instant::now();
    let ops = operations()?;
    let end = Instant::now();
    let cpu = cpu_time::of_this_thread().zip(before).map(|(after, before)| after - before);
    Ok(Run { ops, begin, end, cpu })
}

fn not_started(started: usize, wanted: usize, error: &io::Error) -> Failure {
    Failure::Usage(format!("only {started} of {wanted} threads could be started: {error}: ask for fewer"))
}
