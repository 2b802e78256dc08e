//! Fences: how the host waits for a queue's work.

use sim_engine::{Condition, Position};

use crate::arguments::FenceHandle;
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Fence {
    pub(crate) queue: Handle,
    /// The work that signals it, or `None` if no work does.
    pub(crate) work: Option<Vec<Position>>,
}

impl Driver {
    pub(crate) fn fence(&mut self, fence: FenceHandle) -> Outcome<&mut Fence> {
        if !self.fences.contains_key(&fence.number) {
            return Err(self.unknown("fence", fence.number));
        }
        self.fences.get_mut(&fence.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    /// Returns the conditions for a fence to be signalled, or `None` if no work was submitted with it.
    pub(crate) fn fence_conditions(&mut self, fence: FenceHandle) -> Outcome<Option<Vec<Condition>>> {
        let work = self.fence(fence)?.work.clone();
        Ok(work.map(|positions| positions.into_iter().map(Condition::from).collect()))
    }

    /// Records a violation if the work of a fence is not over.
    pub(crate) fn check_fence_unused(&mut self, fence: FenceHandle, about: &str) -> Outcome {
        let conditions = self.fence_conditions(fence)?.unwrap_or_default();
        if !conditions.iter().all(|condition| self.engine.holds(*condition)) {
            self.violation(format!("fence {:#x} is {about} while its work is not over", fence.number));
        }
        Ok(())
    }
}
