//! What the driver keeps for each thread of the program.

use std::cell::{Cell, RefCell};

pub(crate) use sim_engine::thread::{in_host_function, number};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, the initial mode of every thread.
pub(crate) const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub(crate) const RELAXED: u32 = 2;

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

// A thread that is exiting may call the driver after these are destroyed. Hence `try_with`, which then behaves as on a
// fresh thread.

/// Returns the current context, or 0 for none.
pub(crate) fn current() -> usize {
    CONTEXTS.try_with(|stack| stack.borrow().last().copied()).ok().flatten().unwrap_or(0)
}

/// Replaces the top of the context stack, or removes it if `context` is 0.
pub(crate) fn set_current(context: usize) {
    pop();
    if context != 0 {
        push(context);
    }
}

pub(crate) fn push(context: usize) {
    let _ = CONTEXTS.try_with(|stack| stack.borrow_mut().push(context));
}

pub(crate) fn pop() -> Option<usize> {
    CONTEXTS.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(GLOBAL)
}

pub(crate) fn set_capture_mode(mode: u32) {
    let _ = CAPTURE_MODE.try_with(|own| own.set(mode));
}
