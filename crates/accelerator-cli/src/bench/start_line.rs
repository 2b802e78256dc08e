use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where threads wait for the next lap, without use of a processor, and set out all at once.
///
/// Unlike a barrier it counts nobody, so a thread that failed, or was never started, holds up no other.
pub(super) struct StartLine {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct State {
    lap: u64,
    /// Operations of the lap; `None`: there are no more laps.
    ops: Option<u64>,
}

/// Ends the laps when dropped, so that no thread waits for ever, however the function ends.
pub(super) struct Open<'a>(&'a StartLine);

impl StartLine {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { lap: 0, ops: Some(0) }), changed: Condvar::new() }
    }

    /// Waits for the lap of this number, from 1. Its operations; `None`: there are no more laps.
    pub(super) fn wait(&self, lap: u64) -> Option<u64> {
        let waiting = |state: &mut State| state.lap < lap && state.ops.is_some();
        let state = self.changed.wait_while(self.state(), waiting);
        state.unwrap_or_else(PoisonError::into_inner).ops
    }

    pub(super) fn open(&self) -> Open<'_> {
        Open(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open<'_> {
    /// Begins the next lap.
    pub(super) fn start(&self, ops: u64) {
        let mut state = self.0.state();
        *state = State { lap: state.lap + 1, ops: Some(ops) };
        self.0.changed.notify_all();
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().ops = None;
        self.0.changed.notify_all();
    }
}
