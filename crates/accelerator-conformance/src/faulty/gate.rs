//! Gates that block calls inside the driver, to see what goes on meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use accelerator_core::backend_kit::lock;

use crate::calls::Call;

/// Blocks the next call of one kind inside the driver until the gate is opened or dropped.
#[derive(Debug)]
#[must_use = "dropping it opens it"]
pub struct Gate(Arc<Barrier>);

/// The gates that no call has reached yet.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<Vec<(Call, Arc<Barrier>)>>);

#[derive(Debug, Default)]
struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reached: bool,
    open: bool,
}

impl Gate {
    /// Waits until a call reaches the gate. Returns whether one did within `limit`.
    pub fn wait_reached(&self, limit: Duration) -> bool {
        let state = self.0.state();
        let waited = self.0.changed.wait_timeout_while(state, limit, |state| !state.reached);
        waited.unwrap_or_else(PoisonError::into_inner).0.reached
    }

    /// Lets the call continue.
    pub fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.state().open = true;
        self.0.changed.notify_all();
    }
}

impl Gates {
    pub(super) fn close(&self, call: Call) -> Gate {
        let barrier = Arc::<Barrier>::default();
        self.closed().push((call, Arc::clone(&barrier)));
        Gate(barrier)
    }

    /// Waits at the gate, if there is one for this call.
    pub(super) fn pass(&self, call: Call) {
        let barrier = {
            let mut closed = self.closed();
            let place = closed.iter().position(|(wanted, _)| *wanted == call);
            place.map(|place| closed.remove(place).1)
        };
        if let Some(barrier) = barrier {
            barrier.wait();
        }
    }

    fn closed(&self) -> MutexGuard<'_, Vec<(Call, Arc<Barrier>)>> {
        lock(&self.0)
    }
}

impl Barrier {
    fn wait(&self) {
        let mut state = self.state();
        state.reached = true;
        self.changed.notify_all();
        let opened = self.changed.wait_while(state, |state| !state.open);
        drop(opened);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
