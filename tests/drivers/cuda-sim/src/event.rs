//! Events: marks in streams.

use sim_engine::Position;

use crate::capture::Captured;
use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};

pub(crate) struct Event {
    pub(crate) context: Handle,
    /// What `cuEventCreate` was given.
    pub(crate) flags: u32,
    /// The mark set last.
    pub(crate) recorded: Option<Position>,
    /// When the work reached that mark.
    pub(crate) time: Option<u64>,
    /// Set last in a stream that was captured.
    pub(crate) captured: Option<Captured>,
}

impl Event {
    /// `CU_EVENT_DISABLE_TIMING`
    pub(crate) const DISABLE_TIMING: u32 = 2;

    pub(crate) fn has_timing(&self) -> bool {
        self.flags & Self::DISABLE_TIMING == 0
    }
}

impl Driver {
    pub(crate) fn event(&mut self, handle: Handle) -> Outcome<&mut Event> {
        let context = self.events.get(&handle).ok_or(Code::INVALID_HANDLE)?.context;
        self.context(context)?;
        self.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// The mark that a program may ask about or wait for; `None`: nothing was recorded.
    pub(crate) fn mark(&mut self, handle: Handle) -> Outcome<Option<Position>> {
        let event = self.event(handle)?;
        if event.captured.is_some() {
            return Err(Code::CAPTURED_EVENT);
        }
        Ok(event.recorded)
    }
}
