//! What guards restore when they are dropped, in whatever order that happens.
//!
//! A guard that is dropped before a later guard of the same selection must not restore: that would undo what the later
//! one switched to, and the later one would then bring back what the first had switched to. Instead it hands what it
//! saved to the later one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::backends::BuiltIn;
use crate::selection;
use crate::stream::Stream;

thread_local! {
    /// What this thread's living guards have saved, in the order in which the guards were made.
    static LIVING: RefCell<Vec<Rc<Cell<Saved>>>> = const { RefCell::new(Vec::new()) };
}

/// A selection as it was.
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
        // In a thread that is ending there may be neither guards nor selections any more.
        let _ = LIVING.try_with(|living| living.borrow_mut().push(Rc::clone(&saved)));
        Self(saved)
    }

    /// Takes this guard off the list. Returns the next later one of the same selection.
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
