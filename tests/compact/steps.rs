//! Finds the steps of a job that make the same requests as the previous step.

use std::collections::HashMap;

use accelerator_cli::trace::Op;

/// The steps of a trace that is being read.
#[derive(Default)]
pub(crate) struct Steps {
    number: usize,
    /// Live allocations, by their name in the trace.
    live: HashMap<u64, Made>,
    allocations: usize,
    asked: Vec<Asked>,
    asked_before: Vec<Asked>,
}

#[derive(Clone, Copy)]
struct Made {
    step: usize,
    /// Its index among the allocations of the step.
    place: usize,
    bytes: u64,
}

/// An operation. Allocations are named so that the names are the same in every step.
#[derive(PartialEq)]
enum Asked {
    Alloc { bytes: u64, stream: u32 },
    Free(Name),
    Record(Name, u32),
    Other(Op),
}

#[derive(PartialEq)]
struct Name {
    steps_ago: usize,
    place: usize,
    bytes: u64,
}

impl Steps {
    /// Records an operation of this step.
    pub(crate) fn ask(&mut self, op: &Op) {
        let asked = match *op {
            Op::Alloc { id, bytes, stream } => {
                self.live.insert(id, Made { step: self.number, place: self.allocations, bytes });
                self.allocations += 1;
                Asked::Alloc { bytes, stream }
            }
            Op::Free { id } => {
                let name = self.name(id);
                self.live.remove(&id);
                Asked::Free(name)
            }
            Op::Record { id, stream } => Asked::Record(self.name(id), stream),
            ref other => Asked::Other(other.clone()),
        };
        self.asked.push(asked);
    }

    /// Ends the step. Returns whether it made the same requests as the previous step, in the same order.
    pub(crate) fn end(&mut self) -> bool {
        let is_repeated = !self.asked.is_empty() && self.asked == self.asked_before;
        self.asked_before = std::mem::take(&mut self.asked);
        self.number += 1;
        self.allocations = 0;
        is_repeated
    }

    fn name(&self, id: u64) -> Name {
        let Made { step, place, bytes } = self.live[&id];
        Name { steps_ago: self.number - step, place, bytes }
    }
}
