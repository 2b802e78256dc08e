//! What is kept of a pool while it is paused, for all of its handles.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use super::kept::Kept;
use crate::accelerator::Accelerator;
use crate::backend::Backend;
use crate::sync::lock;
use crate::types::MemPoolId;

pub(super) struct Contents<B: Backend> {
    kept: Mutex<Option<Kept<B>>>,
    /// The thread that pauses or resumes the pool. A callback that does so, too, would wait for itself.
    thread: Mutex<Option<ThreadId>>,
}

/// The contents while a thread pauses or resumes the pool.
pub(super) struct ContentsGuard<'a, B: Backend> {
    kept: MutexGuard<'a, Option<Kept<B>>>,
    thread: &'a Mutex<Option<ThreadId>>,
}

impl<B: Backend> Contents<B> {
    /// Returns those of a pool. They live as long as a handle of it.
    pub(super) fn of(accelerator: &Accelerator<B>, pool: MemPoolId) -> Arc<Self> {
        let (first, second) = pool.numbers();
        let name = [b"contents of a pool".as_slice(), &first.to_ne_bytes(), &second.to_ne_bytes()].concat();
        accelerator.unique(name, || Self { kept: Mutex::default(), thread: Mutex::default() })
    }

    /// Waits until no other thread pauses or resumes the pool. Returns `None` if this thread does.
    pub(super) fn lock(&self) -> Option<ContentsGuard<'_, B>> {
        let this = thread::current().id();
        if *lock(&self.thread) == Some(this) {
            return None;
        }
        let kept = lock(&self.kept);
        *lock(&self.thread) = Some(this);
        Some(ContentsGuard { kept, thread: &self.thread })
    }
}

impl<B: Backend> Drop for ContentsGuard<'_, B> {
    fn drop(&mut self) {
        *lock(self.thread) = None;
    }
}

impl<B: Backend> Deref for ContentsGuard<'_, B> {
    type Target = Option<Kept<B>>;

    fn deref(&self) -> &Self::Target {
        &self.kept
    }
}

impl<B: Backend> DerefMut for ContentsGuard<'_, B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.kept
    }
}
