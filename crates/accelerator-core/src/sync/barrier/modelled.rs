//! The barrier in a model.
//!
//! The barrier of the process makes each other thread pass a full barrier at some moment: what that thread did before
//! it happens before everything that follows here, and everything done here happens before what that thread does after
//! it. Nothing orders two threads that only pass their own side. Therefore each thread has a variable, and its side
//! changes it. The barrier of the process changes the variables of all threads. Two sequentially consistent fences
//! would order the two sides as well, but also threads that only pass their own side.

use loom::lazy_static;

use crate::sync::primitives::atomic::{AtomicU64, Ordering};
use crate::sync::thread_number::known_thread_number;

/// What the system answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum System {
    /// It does as asked.
    Supports,
    /// It does not know the call.
    Lacks,
    /// It does as asked so many times, and refuses after that.
    RefusesAfter(u64),
}

lazy_static! {
    static ref SYSTEM: std::sync::Mutex<System> = std::sync::Mutex::new(System::Supports);
    /// By thread number.
    static ref THREADS: [AtomicU64; 5] = std::array::from_fn(|_| AtomicU64::new(0));
}

/// Sets what the system answers in this run.
pub(in crate::sync) fn answer(system: System) {
    *SYSTEM.lock().unwrap() = system;
}

pub(in crate::sync) fn is_supported() -> bool {
    *SYSTEM.lock().unwrap() != System::Lacks
}

pub(in crate::sync) fn of_process() -> bool {
    {
        let mut system = SYSTEM.lock().unwrap();
        match &mut *system {
            System::Supports => {}
            System::RefusesAfter(left @ 1..) => *left -= 1,
            System::Lacks | System::RefusesAfter(0) => return false,
        }
    }
    THREADS.iter().for_each(pass);
    true
}

pub(in crate::sync) fn of_this_thread() {
    pass(&THREADS[known_thread_number() as usize]);
}

/// Assumes what the real one relies on: that stores and loads have taken effect after a long sleep.
pub(in crate::sync) fn wait_for_stores() {
    THREADS.iter().for_each(pass);
}

fn pass(thread: &AtomicU64) {
    thread.fetch_add(1, Ordering::AcqRel);
}
