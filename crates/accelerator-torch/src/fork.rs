//! Forked children. They have copies of the parent's memory, and get their own from PyTorch's allocator: of this one's
//! locks, any may be held by a thread that a child does not have. The addresses that are in use are an exception, since
//! a child has to tell the parent's memory from its own.
#![allow(unsafe_code)] // exported functions

use std::cell::RefCell;

use crate::boundary::or;
use crate::memory::{self, Locked};

thread_local! {
    /// What this thread holds while it forks.
    static HELD: RefCell<Vec<Locked>> = const { RefCell::new(Vec::new()) };
}

/// Comes before a fork, on the thread that forks.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_fork_begin() {
    or((), || HELD.replace(memory::lock_addresses()).clear());
}

/// Comes after a fork, in the parent and in the child.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_fork_end() {
    or((), || HELD.take().clear());
}

/// Forgets memory in a child, where it stays. Returns false if it is not the parent's.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_forget(address: u64) -> bool {
    or(false, || memory::forget(address).is_some())
}
