//! What the driver keeps for each thread of the program.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which every thread starts with.
pub(crate) const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub(crate) const RELAXED: u32 = 2;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

// A thread that ends may call the driver when these are already gone: `try_with`, and then as on a fresh
// thread.

/// A number of the calling thread.
pub(crate) fn number() -> u64 {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// The current context, 0 for none.
pub(crate) fn current() -> usize {
    CONTEXTS.try_with(|stack| stack.borrow().last().copied()).ok().flatten().unwrap_or(0)
}

/// Replaces the top of the stack of contexts; 0 takes it away.
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

/// Whether the calling thread runs a function given to `cuLaunchHostFunc`, from which no driver call is
/// permitted.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

pub(crate) fn enter_host_function() {
    let _ = IN_HOST_FUNCTION.try_with(|inside| inside.set(true));
}
