//! Replays a trace in one loop, to measure the allocator without reading a clock around each call.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Instant;

use accelerator_conformance::Controls;
use accelerator_core::{Allocation, Error, Stream};

use super::outcome::{Outcome, ReplayError};
use super::replayer::{Live, Replayer};
use crate::trace::{Line, Op, PoolOp};

/// The memory that a line of a program needs beside the line itself, in bytes.
pub(crate) const MEMORY_OF_STEP: u64 = size_of::<Step>() as u64;

/// A trace that was parsed and checked in advance, so that the loop does little but call the allocator.
pub struct Program {
    /// Lines that only print are left out.
    lines: Vec<Line>,
    /// What the loop does with each line. They are apart from the lines, so that the loop reads little memory.
    steps: Vec<Step>,
    /// The allocation that each slot holds last.
    slots: Vec<u64>,
    /// The streams by the numbers that steps have.
    streams: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Step {
    /// The result goes to a slot. Slots are used again, so that few of them stay in the processor's caches.
    Alloc {
        slot: u32,
        stream: u32,
        bytes: NonZeroU64,
    },
    /// An allocation of zero bytes.
    Null,
    Free {
        slot: u32,
    },
    Record {
        slot: u32,
        stream: u32,
    },
    Hold {
        stream: u32,
    },
    Release {
        stream: u32,
    },
    /// The replayer knows how.
    Line,
}

/// The line at which a replay failed, and why.
pub type Failed = (usize, ReplayError);

impl Program {
    /// Prepares a trace.
    ///
    /// # Errors
    /// [`ReplayError`] for a line with an allocation that is live already, or not live.
    pub fn new(mut lines: Vec<Line>) -> Result<Self, Failed> {
        lines.retain(|line| !only_prints(&line.op));
        let steps = vec![Step::Line; lines.len()];
        let mut program = Self { lines, steps, slots: Vec::new(), streams: Vec::new() };
        // After a checkpoint was restored, the loop would not know which allocations are live.
        if !program.lines.iter().any(|line| names_allocations(&line.op)) {
            program.assign_slots()?;
        }
        Ok(program)
    }

    fn assign_slots(&mut self) -> Result<(), Failed> {
        let Self { lines, steps, slots, streams } = self;
        let (mut live, mut vacant, mut known) = (HashMap::new(), Vec::new(), HashMap::new());
        let mut number_of = |stream| {
            *known.entry(stream).or_insert_with(|| {
                streams.push(stream);
                streams.len() as u32 - 1
            })
        };
        for (step, line) in steps.iter_mut().zip(lines.iter()) {
            let failed = |error| (line.number, error);
            *step = match line.op {
                Op::Alloc { id, bytes, stream } => {
                    let slot = vacant.pop().unwrap_or_else(|| {
                        slots.push(id);
                        slots.len() as u32 - 1
                    });
                    slots[slot as usize] = id;
                    if live.insert(id, slot).is_some() {
                        return Err(failed(ReplayError::LiveAlready(id)));
                    }
                    let alloc = |bytes| Step::Alloc { slot, stream: number_of(stream), bytes };
                    NonZeroU64::new(bytes).map_or(Step::Null, alloc)
                }
                Op::Free { id } => {
                    let slot = live.remove(&id).ok_or_else(|| failed(ReplayError::NotLive(id)))?;
                    vacant.push(slot);
                    Step::Free { slot }
                }
                Op::Record { id, stream } => {
                    let slot = *live.get(&id).ok_or_else(|| failed(ReplayError::NotLive(id)))?;
                    Step::Record { slot, stream: number_of(stream) }
                }
                Op::Hold { stream } => Step::Hold { stream: number_of(stream) },
                Op::Release { stream } => Step::Release { stream: number_of(stream) },
                _ => Step::Line,
            };
        }
        Ok(())
    }
}

/// Tells of an allocation that failed for lack of memory. Errors are taken by value: an error that the loop itself
/// matched or dropped would have to be in memory, and so would each allocation.
#[cold]
#[inline(never)]
fn failed(error: Error, line: &Line, each: &mut impl FnMut(&Outcome)) -> Result<(), ReplayError> {
    match (error, &line.op) {
        (Error::OutOfMemory(_), Op::Alloc { id, .. }) => each(&Outcome::OutOfMemory(*id)),
        (error, _) => return Err(error.into()),
    }
    Ok(())
}

/// Returns whether the operation only prints something.
fn only_prints(op: &Op) -> bool {
    match op {
        Op::Stats | Op::Snapshot | Op::MemInfo | Op::CacheInfo | Op::Calls => true,
        Op::Pool(op) => matches!(op, PoolOp::Uses { .. } | PoolOp::Live { .. } | PoolOp::Snapshot { .. }),
        _ => false,
    }
}

/// Returns whether the operation allocates or frees other than by `alloc` and `free`.
fn names_allocations(op: &Op) -> bool {
    matches!(op, Op::AllocAt { .. } | Op::Pool(PoolOp::Checkpoint { .. } | PoolOp::Restore { .. }))
}

impl<B: Controls> Replayer<B> {
    /// Runs a program under one pair of clock readings, and calls `each` with the outcome of each line that has one.
    ///
    /// # Errors
    /// [`ReplayError`], with the number of the line. Allocations may have other numbers then.
    #[inline(never)] // so that profilers can tell it from what prepares it
    pub fn run(&mut self, program: &Program, mut each: impl FnMut(&Outcome)) -> Result<(), Failed> {
        let mut slots: Vec<Option<Allocation<B>>> = program.slots.iter().map(|_| None).collect();
        let mut streams = vec![None; program.streams.len()];
        let start = Instant::now();
        let ran = program.steps.iter().zip(&program.lines).try_for_each(|(step, line)| {
            self.perform(*step, line, program, &mut slots, &mut streams, &mut each)
                .map_err(|error| (line.number, error))
        });
        self.stopwatch.total = Some(start.elapsed());
        for (slot, id) in slots.into_iter().zip(&program.slots) {
            self.live.extend(slot.map(|allocation| (*id, Live::Allocated(allocation))));
        }
        ran
    }

    #[inline(always)]
    fn perform(
        &mut self,
        step: Step,
        line: &Line,
        program: &Program,
        slots: &mut [Option<Allocation<B>>],
        streams: &mut [Option<Stream<B>>],
        each: &mut impl FnMut(&Outcome),
    ) -> Result<(), ReplayError> {
        let allocator = self.accelerator.allocator();
        match step {
            Step::Alloc { slot, stream, bytes } => {
                let stream = self.numbered(stream, program, streams)?;
                self.stopwatch.operations += 1;
                match allocator.allocate(bytes, stream) {
                    Ok(allocation) => slots[slot as usize] = Some(allocation),
                    Err(error) => failed(error, line, each)?,
                }
            }
            Step::Null => self.stopwatch.operations += 1,
            Step::Free { slot } => {
                if let Some(allocation) = slots[slot as usize].take() {
                    self.stopwatch.operations += 1;
                    allocator.free(allocation).map_err(Error::from)?;
                    self.settle();
                }
            }
            Step::Record { slot, stream } => {
                let stream = self.numbered(stream, program, streams)?;
                self.shared = true;
                if let Some(allocation) = &slots[slot as usize] {
                    self.stopwatch.operations += 1;
                    allocator.record_use(allocation, stream)?;
                }
            }
            Step::Hold { stream } => {
                let stream = self.numbered(stream, program, streams)?;
                self.accelerator.backend().hold(stream.native());
            }
            Step::Release { stream } => {
                let stream = self.numbered(stream, program, streams)?;
                self.accelerator.backend().release(stream.native());
                self.settle();
            }
            Step::Line => each(&self.step(line)?),
        }
        Ok(())
    }

    /// Returns a stream by its number in the program. Streams are made at their first use.
    #[inline(always)]
    fn numbered(
        &mut self,
        number: u32,
        program: &Program,
        streams: &mut [Option<Stream<B>>],
    ) -> Result<Stream<B>, Error> {
        let known = &mut streams[number as usize];
        match known {
            Some(stream) => Ok(*stream),
            None => Ok(*known.insert(self.stream(program.streams[number as usize])?)),
        }
    }
}
