use std::sync::{Condvar, Mutex, MutexGuard};

use accelerator_core::backend_kit::{lock, wait_while};

/// Lets threads wait for the next lap without using CPU time, and start at the same time.
///
/// Unlike a barrier, it does not count threads, so a thread that failed or never started does not block the others.
pub(super) struct StartLine {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct State {
    lap: u64,
    /// The number of operations in the lap, or `None` after the last lap.
    ops: Option<u64>,
}

/// Ends the laps when dropped, so that no thread waits forever, however the function ends.
pub(super) struct Open<'a>(&'a StartLine);

impl StartLine {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { lap: 0, ops: Some(0) }), changed: Condvar::new() }
    }

    /// Waits for the lap with this number, counted from 1. Returns its number of operations, or `None` if there are no
    /// more laps.
    pub(super) fn wait(&self, lap: u64) -> Option<u64> {
        let waiting = |state: &mut State| state.lap < lap && state.ops.is_some();
        wait_while(&self.changed, self.state(), waiting).ops
    }

    pub(super) fn open(&self) -> Open<'_> {
        Open(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Open<'_> {
    /// Starts the next lap.
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
