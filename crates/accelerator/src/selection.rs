//! The current device of each thread and backend. The current streams are the core's.

use std::cell::{Cell, RefCell};

use crate::backends::{AnyDevice, BuiltIn, ENTRIES};

thread_local! {
    /// The indexes of the current devices, by backend.
    static INDEXES: [Cell<u32>; ENTRIES.len()] = const { [const { Cell::new(0) }; ENTRIES.len()] };
    /// The current device of the backend that this thread has used last. Like the indexes, it has no destructor, so
    /// reading it takes no check whether the thread is ending.
    static LAST: Cell<Option<AnyDevice>> = const { Cell::new(None) };
    /// The devices that this thread has used, by backend and index. Finding an open device takes a lock, and this does
    /// not.
    static USED: RefCell<[Vec<Option<AnyDevice>>; ENTRIES.len()]> = RefCell::default();
}

/// Returns the index of the current device.
pub(crate) fn index(backend: BuiltIn) -> u32 {
    INDEXES.with(|indexes| indexes[backend.place()].get())
}

/// Makes a device current, which must exist, and returns the index of the previous one.
pub(crate) fn exchange_index(backend: BuiltIn, index: u32) -> u32 {
    let before = INDEXES.with(|indexes| indexes[backend.place()].replace(index));
    if before != index {
        LAST.set(None);
    }
    before
}

/// Returns the current device of the backend that this thread has [used](remember) last, unless another is current now.
#[inline]
pub(crate) fn last_device() -> Option<AnyDevice> {
    LAST.get()
}

/// Returns an open device, if this thread has [used](remember) it.
pub(crate) fn device(backend: BuiltIn, index: u32) -> Option<AnyDevice> {
    let used = USED.try_with(|used| *used.borrow()[backend.place()].get(index as usize)?);
    used.ok().flatten() // a thread that is ending knows none
}

/// Makes the next [`device`] return this one, and also [`last_device`] if it is current.
pub(crate) fn remember(backend: BuiltIn, index: u32, device: AnyDevice) {
    if index == self::index(backend) {
        LAST.set(Some(device));
    }
    let index = index as usize;
    let _ = USED.try_with(|used| {
        let used = &mut used.borrow_mut()[backend.place()];
        if used.len() <= index {
            used.resize(index + 1, None);
        }
        used[index] = Some(device);
    });
}
