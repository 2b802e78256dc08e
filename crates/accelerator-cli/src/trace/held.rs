use std::collections::HashSet;

use accelerator_tracker::Limits;
use accelerator_tracker::limits::{Budget, LimitError};

use super::capture_op::CaptureOp;
use super::op::Op;
use super::pool_op::PoolOp;

/// The memory that a stream of a replay needs, in bytes.
const MEMORY_OF_STREAM: u64 = 256;

/// The memory that a pool or a graph needs, in bytes.
const MEMORY_OF_POOL: u64 = 2048;

/// The memory that a checkpoint needs for each allocation, in bytes.
const MEMORY_OF_CHECKPOINT: u64 = 256;

/// Counts the memory that the lines of a trace need, both while they are stored and in the replay.
pub(super) struct Held {
    budget: Budget,
    /// The size of a line in bytes.
    pub(super) line: u64,
    /// The memory of an allocation until it is freed, in bytes.
    pub(super) allocation: u64,
    /// The number of allocations that are not freed yet.
    live: u64,
    streams: HashSet<u32>,
}

impl Held {
    pub(super) fn new(limits: Limits) -> Self {
        Self { budget: Budget::new(limits.memory), line: 0, allocation: 0, live: 0, streams: HashSet::new() }
    }

    pub(super) fn add(&mut self, op: &Op) -> Result<(), LimitError> {
        if self.allocation == 0 {
            return Ok(()); // the trace is not replayed
        }
        for stream in streams_of(op) {
            if self.streams.insert(stream) {
                self.budget.charge(MEMORY_OF_STREAM)?;
            }
        }
        match op {
            Op::Alloc { .. } | Op::AllocAt { .. } => {
                self.live += 1;
                self.budget.charge(self.line + self.allocation)
            }
            Op::Free { .. } => {
                if let Some(live) = self.live.checked_sub(1) {
                    self.live = live;
                    self.budget.discharge(self.allocation);
                }
                self.budget.charge(self.line)
            }
            Op::Conf { settings } if self.line > 0 => self.budget.charge(self.line + settings.len() as u64),
            Op::Pool(PoolOp::Live { ids, .. }) if self.line > 0 => self.budget.charge(self.line + 8 * ids.len() as u64),
            Op::Pool(PoolOp::Checkpoint { name, .. } | PoolOp::Restore { name, .. }) => {
                self.budget.charge(self.line + name.len() as u64 + MEMORY_OF_CHECKPOINT * (1 + self.live))
            }
            Op::Pool(PoolOp::Resume { others, .. }) => {
                self.budget.charge(self.line + MEMORY_OF_POOL * (1 + others.len() as u64))
            }
            Op::Pool(_) | Op::Capture(CaptureOp::Begin { .. }) => self.budget.charge(self.line + MEMORY_OF_POOL),
            _ => self.budget.charge(self.line),
        }
    }

    /// Counts a comment, which may be stored in two places.
    pub(super) fn add_comment(&mut self, comment: &str) -> Result<(), LimitError> {
        if self.line == 0 { Ok(()) } else { self.budget.charge(2 * comment.len() as u64) }
    }
}

/// Returns the streams that a line names.
fn streams_of(op: &Op) -> impl Iterator<Item = u32> {
    let (first, second) = match op {
        Op::Alloc { stream, .. }
        | Op::AllocAt { stream, .. }
        | Op::Record { stream, .. }
        | Op::Hold { stream }
        | Op::Release { stream }
        | Op::Capture(
            CaptureOp::Current { stream }
            | CaptureOp::Launch { stream }
            | CaptureOp::Begin { stream, .. }
            | CaptureOp::End { stream },
        ) => (Some(*stream), None),
        Op::Capture(CaptureOp::Wait { stream, other }) => (Some(*stream), Some(*other)),
        Op::Pool(PoolOp::Begin { stream, .. }) => (*stream, None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}
