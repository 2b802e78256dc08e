//! Events: marks in streams.

use sim_engine::Position;

use crate::capture::Captured;
use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};

pub(crate) struct Event {
    pub(crate) context: Handle,
    /// The flags passed to `cuEventCreate`.
    pub(crate) flags: u32,
    /// The position recorded last.
    pub(crate) recorded: Option<Position>,
    /// The time at which the work reached that position.
    pub(crate) time: Option<u64>,
    /// Set if it was last recorded in a captured stream.
    pub(crate) captured: Option<Captured>,
}

impl Event {
    /// `CU_EVENT_DISABLE_TIMING`
    pub(crate) const DISABLE_TIMING: u32 = 2;
    /// `CU_EVENT_INTERPROCESS`, which requires `CU_EVENT_DISABLE_TIMING`.
    pub(crate) const INTERPROCESS: u32 = 4;

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

    /// Returns the position that a program may query or wait for, or `None` if nothing was recorded. An event of a
    /// capture has none, and the attempt invalidates the capture.
    pub(crate) fn mark(&mut self, handle: Handle) -> Outcome<Option<Position>> {
        let event = self.event(handle)?;
        let recorded = event.recorded;
        match event.captured.as_ref().map(|captured| captured.capture) {
            None => Ok(recorded),
            Some(capture) => {
                self.invalidate(capture);
                Err(Code::CAPTURED_EVENT)
            }
        }
    }
}
