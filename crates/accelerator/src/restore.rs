//! Restores the state that guards have saved, in whatever order the guards are dropped.
//!
//! If a guard is dropped before a later guard of the same selection, it must not restore. That would undo the later
//! guard's change, and the later guard would then restore the earlier guard's change. Instead the earlier guard passes
//! its saved state to the later one.

use std::cell::RefCell;
use std::marker::PhantomData;

use accelerator_core::StreamId;

use crate::backends::{AnyDevice, BuiltIn};
use crate::selection;
use crate::stream::Stream;

thread_local! {
    /// The state saved by the living guards of this thread, in the order in which the guards were created. A guard that
    /// is dropped before a later one leaves a gap, so that places stay the same.
    static LIVING: RefCell<Vec<Option<Saved>>> = const { RefCell::new(Vec::new()) };
}

/// A saved selection.
#[derive(Clone, Copy)]
enum Saved {
    /// The current device of a backend.
    Device { backend: BuiltIn, index: u32 },
    /// The current stream of a device.
    Stream { device: AnyDevice, id: StreamId },
}

/// Restores one selection of this thread on drop. Not `Send`, since the selection belongs to the thread.
#[derive(Debug)]
pub(crate) struct Restore {
    /// Its place among the living guards.
    place: usize,
    thread: PhantomData<*const ()>,
}

impl Restore {
    /// Makes a device of a backend current, which must exist, and saves the one that was.
    pub(crate) fn device(backend: BuiltIn, index: u32) -> Self {
        Self::new(Saved::Device { backend, index: selection::exchange_index(backend, index) })
    }

    /// Makes a stream the current one of its device and saves the one that was.
    pub(crate) fn stream(stream: Stream) -> Self {
        let device = stream.accelerator();
        Self::new(Saved::Stream { device, id: device.exchange_stream(stream.id()) })
    }

    fn new(saved: Saved) -> Self {
        // In a thread that is ending, the list may already be gone.
        let place = LIVING.try_with(|living| {
            let mut living = living.borrow_mut();
            living.push(Some(saved));
            living.len() - 1
        });
        Self { place: place.unwrap_or_default(), thread: PhantomData }
    }

    /// Removes this guard from the list. Returns the state to restore, unless it was passed to a later guard of the
    /// same selection.
    fn leave(&self) -> Option<Saved> {
        let leave = |living: &RefCell<Vec<Option<Saved>>>| {
            let mut living = living.borrow_mut();
            let saved = living.get_mut(self.place)?.take()?;
            let mut later = living[self.place + 1..].iter_mut().flatten();
            if let Some(later) = later.find(|later| later.is_same_selection(saved)) {
                *later = saved;
                return None;
            }
            while living.last().is_some_and(Option::is_none) {
                living.pop();
            }
            Some(saved)
        };
        LIVING.try_with(leave).ok().flatten()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(saved) = self.leave() {
            saved.restore();
        }
    }
}

impl Saved {
    fn is_same_selection(self, other: Self) -> bool {
        match (self, other) {
            (Self::Device { backend, .. }, Self::Device { backend: other, .. }) => backend == other,
            (Self::Stream { device, .. }, Self::Stream { device: other, .. }) => device.address() == other.address(),
            _ => false,
        }
    }

    fn restore(self) {
        match self {
            Self::Device { backend, index } => _ = selection::exchange_index(backend, index),
            Self::Stream { device, id } => _ = device.exchange_stream(id),
        }
    }
}
