//! Restores the state that guards have saved, in whatever order the guards are dropped.
//!
//! If a guard is dropped before a later guard of the same selection, it must not restore. That would undo the later
//! guard's change, and the later guard would then restore the earlier guard's change. Instead the earlier guard passes
//! its saved state to the later one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::backends::BuiltIn;
use crate::selection;
use crate::stream::Stream;

thread_local! {
    /// The state saved by the living guards of this thread, in the order in which the guards were created.
    static LIVING: RefCell<Vec<Rc<Cell<Saved>>>> = const { RefCell::new(Vec::new()) };
}

/// A saved selection.
#[derive(Clone, Copy, Debug)]
enum Saved {
    /// The current device of a backend.
    Device { backend: BuiltIn, index: u32 },
    /// The current stream of a device.
    Stream { backend: BuiltIn, index: u32, stream: Option<Stream> },
}

/// Restores one selection of this thread on drop. Not `Send`, since the selection belongs to the thread.
#[derive(Debug)]
pub(crate) struct Restore(Rc<Cell<Saved>>);

impl Restore {
    /// Saves the current device of a backend.
    pub(crate) fn device(backend: BuiltIn) -> Self {
        Self::new(Saved::Device { backend, index: selection::index(backend) })
    }

    /// Saves the current stream of a device.
    pub(crate) fn stream(backend: BuiltIn, index: u32) -> Self {
        Self::new(Saved::Stream { backend, index, stream: selection::stream(backend, index) })
    }

    fn new(saved: Saved) -> Self {
        let saved = Rc::new(Cell::new(saved));
        // In a thread that is ending, guards and selections may already be gone.
        let _ = LIVING.try_with(|living| living.borrow_mut().push(Rc::clone(&saved)));
        Self(saved)
    }

    /// Removes this guard from the list. Returns the next later guard of the same selection.
    fn leave(&self) -> Option<Rc<Cell<Saved>>> {
        LIVING
            .try_with(|living| {
                let mut living = living.borrow_mut();
                let place = living.iter().position(|other| Rc::ptr_eq(other, &self.0))?;
                living.remove(place);
                living[place..].iter().find(|later| later.get().is_same_selection(self.0.get())).cloned()
            })
            .ok()
            .flatten()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let saved = self.0.get();
        match self.leave() {
            Some(later) => later.set(saved),
            None => saved.restore(),
        }
    }
}

impl Saved {
    fn is_same_selection(self, other: Self) -> bool {
        match (self, other) {
            (Self::Device { backend, .. }, Self::Device { backend: other, .. }) => backend == other,
            (
                Self::Stream { backend, index, .. },
                Self::Stream { backend: other_backend, index: other_index, .. },
            ) => (backend, index) == (other_backend, other_index),
            _ => false,
        }
    }

    fn restore(self) {
        match self {
            Self::Device { backend, index } => _ = selection::exchange_index(backend, index),
            Self::Stream { backend, index, stream } => selection::set_stream(backend, index, stream),
        }
    }
}
