//! The primitives of all code that the models run: the standard library's, or in a model those of loom, which tries the
//! interleavings of the threads and the values that a load may return. docs/architecture/models.md says more.

#[cfg(test)]
#[cfg(loom)]
mod modelled;

use std::sync::TryLockError;

#[cfg(all(test, loom))]
pub(crate) use self::modelled::*;
#[cfg(not(all(test, loom)))]
pub(crate) use self::real::*;

#[cfg(not(all(test, loom)))]
mod real {
    pub(crate) use std::cell::UnsafeCell;
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::{hint, thread, thread_local as thread_static};

    pub(crate) use crate::sync::{lock, wait_while};

    /// Declares a static variable. In a model, each run has its own.
    macro_rules! shared_static {
        (static $name:ident: $type:ty = $value:expr;) => {
            static $name: $type = $value;
        };
    }

    pub(crate) use shared_static;
}

/// Locks a mutex unless it is locked; ignores poison like [`lock`].
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Whether this is a model. A model has few threads and few steps, so limits are as low as they can be.
pub(crate) const IS_MODEL: bool = cfg!(all(test, loom));
