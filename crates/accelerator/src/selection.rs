//! The current device of each thread and backend. The current streams are the core's.
//!
//! A thread that is ending no longer has a selection: device 0 is then current.

use std::cell::RefCell;

use crate::backends::{AnyDevice, BuiltIn, ENTRIES};

#[derive(Default)]
struct Selection {
    index: u32,
    /// The devices that this thread has used, by index. Finding an open device takes a lock, and this does not.
    devices: Vec<Option<AnyDevice>>,
}

impl Selection {
    fn device(&self, index: u32) -> Option<AnyDevice> {
        *self.devices.get(index as usize)?
    }
}

thread_local! {
    static SELECTIONS: RefCell<[Selection; ENTRIES.len()]> = RefCell::default();
}

/// Returns the index of the current device.
pub(crate) fn index(backend: BuiltIn) -> u32 {
    with(backend, |selection| selection.index).unwrap_or_default()
}

/// Makes a device current, which must exist, and returns the index of the previous one.
pub(crate) fn exchange_index(backend: BuiltIn, index: u32) -> u32 {
    with(backend, |selection| std::mem::replace(&mut selection.index, index)).unwrap_or_default()
}

/// Returns the current device, if this thread has [used](remember) it.
pub(crate) fn current_device(backend: BuiltIn) -> Option<AnyDevice> {
    with(backend, |selection| selection.device(selection.index)).flatten()
}

/// Returns an open device, if this thread has [used](remember) it.
pub(crate) fn device(backend: BuiltIn, index: u32) -> Option<AnyDevice> {
    with(backend, |selection| selection.device(index)).flatten()
}

/// Makes the next [`device`] return this one.
pub(crate) fn remember(backend: BuiltIn, index: u32, device: AnyDevice) {
    let index = index as usize;
    with(backend, |Selection { devices, .. }| {
        if devices.len() <= index {
            devices.resize(index + 1, None);
        }
        devices[index] = Some(device);
    });
}

fn with<T>(backend: BuiltIn, f: impl FnOnce(&mut Selection) -> T) -> Option<T> {
    SELECTIONS.try_with(|selections| selections.borrow_mut().get_mut(backend.place()).map(f)).ok().flatten()
}
