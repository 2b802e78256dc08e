//! Loom's primitives, with the interface of the standard library's, as far as the core uses it.
#![allow(unsafe_code)] // a type that is `Sync`

pub(crate) mod atomic;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

pub(crate) use loom::hint;
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

use self::atomic::Ordering;

pub(crate) mod thread {
    pub(crate) use loom::thread::{JoinHandle, ThreadId, current, yield_now};

    /// In words. Loom's own threads have 4096, which are too few for the allocator.
    const STACK: usize = 1 << 15;

    pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        loom::thread::Builder::new().stack_size(STACK).spawn(work).unwrap()
    }

    /// The length of a sleep means nothing in a model: any number of other threads' steps fit into it.
    pub(crate) fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// Declares a static variable of which each run of a model has its own.
macro_rules! shared_static {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}

/// Declares variables of which each thread has its own. Loom's own macro does not know constant initial values.
macro_rules! thread_static {
    ($(static $name:ident: $type:ty = $value:expr;)+) => {
        loom::thread_local! { $(static $name: $type = $value;)+ }
    };
}

pub(crate) use {shared_static, thread_static};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait_while<'a, T>(
    changed: &Condvar,
    mut guard: MutexGuard<'a, T>,
    mut condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while condition(&mut guard) {
        guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

/// A cell that fails the model if two threads access it, unless everything that one did happens before the other's
/// access.
#[derive(Debug, Default)]
pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Counts as a write at this moment, whatever the pointer is used for.
    pub(crate) fn get(&self) -> *mut T {
        self.0.with_mut(|pointer| pointer)
    }
}

/// Stands for data that threads access one after the other, and fails the model like an [`UnsafeCell`].
#[derive(Default)]
pub(crate) struct Exclusive(UnsafeCell<()>);

// SAFETY: There is no data.
unsafe impl Sync for Exclusive {}

impl Exclusive {
    pub(crate) fn access(&self) {
        self.0.get();
    }
}

/// Runs a model with every interleaving of its threads that preempts them at most this often, and with every value that
/// each load may return. It may start three threads. `LOOM_MAX_PREEMPTIONS` overrides the bound.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let (begun, runs) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut builder = loom::model::Builder::new();
    let bound = *builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    let counted = Arc::clone(&runs);
    let model = Arc::new(model);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let model = Arc::clone(&model);
        thread::spawn(move || model()).join().unwrap();
    });
    let (runs, name) = (runs.load(Ordering::Relaxed), std::thread::current());
    let name = name.name().unwrap_or_default();
    println!("{name}: {runs} runs with at most {bound} preemptions, {:.1} s", begun.elapsed().as_secs_f64());
}
