//! Driver calls that fail on demand.

use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use sim_engine::Face;

use super::state::Session;

/// Which of the next calls fail. The first call from now on has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plan {
    /// None.
    #[default]
    None,
    /// This one.
    One(u64),
    /// Both of these.
    Two(u64, u64),
    /// This one and all later ones.
    From(u64),
    /// The same, because the device is lost: it does no more work.
    Lost(u64),
    /// Requests for memory: so many of them.
    Memory(u64),
}

/// The calls of a device so far, and the plan.
#[derive(Debug)]
pub(super) struct Failures {
    device: usize,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    calls: u64,
    plan: Plan,
}

impl Failures {
    pub(super) fn of(device: usize) -> Self {
        Self { device, counted: Mutex::default() }
    }

    /// Sets the plan and starts counting again. Returns the number of calls before.
    pub(super) fn plan(&self, plan: Plan) -> u64 {
        std::mem::replace(&mut *lock(&self.counted), Counted { calls: 0, plan }).calls
    }

    /// Counts a call, and fails it if that is planned.
    pub(super) fn enter(&self, call: &'static str) -> DriverResult<()> {
        let mut counted = lock(&self.counted);
        counted.calls += 1;
        let number = counted.calls;
        let fails = match counted.plan {
            Plan::None | Plan::Memory(_) => false,
            Plan::One(nth) => number == nth,
            Plan::Two(first, second) => number == first || number == second,
            Plan::From(first) | Plan::Lost(first) => number >= first,
        };
        let is_lost = matches!(counted.plan, Plan::Lost(_));
        drop(counted);
        if !fails {
            return Ok(());
        }
        let kind = if is_lost { DriverErrorKind::DeviceLost } else { DriverErrorKind::Other };
        if is_lost {
            self.stop();
        }
        Err(DriverError::refused(kind, call, "the test makes this call fail"))
    }

    /// Like [`Self::enter`], for a call that requests memory.
    pub(super) fn enter_for_memory(&self, call: &'static str) -> DriverResult<()> {
        self.enter(call)?;
        let mut counted = lock(&self.counted);
        let Plan::Memory(left) = &mut counted.plan else { return Ok(()) };
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(DriverError::refused(DriverErrorKind::OutOfMemory, call, "the test makes this request fail"))
    }

    /// A device that is lost does no more work, which everybody knows.
    fn stop(&self) {
        let mut session = Session::new();
        session.engine_mut().drop_work(|_, lane| lane.device == self.device);
        session.shadows[self.device].tell_all();
    }
}
