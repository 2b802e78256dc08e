//! The current device, and the current stream of each device, for each thread and backend.
//!
//! A thread that is ending no longer has a selection: device 0 and the default streams are then current.

use std::cell::RefCell;

use crate::backends::{BuiltIn, ENTRIES};
use crate::stream::Stream;

#[derive(Default)]
struct Selection {
    index: u32,
    /// The current streams by device index. `None` means the default stream, which has not been requested yet.
    streams: Vec<Option<Stream>>,
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

/// Returns the current stream of a device, if any was selected or requested.
pub(crate) fn stream(backend: BuiltIn, index: u32) -> Option<Stream> {
    with(backend, |selection| *selection.streams.get(index as usize)?).flatten()
}

/// Makes a stream the current stream of a device. `None` means the default stream. Returns the previous one, like
/// [`stream`].
pub(crate) fn exchange_stream(backend: BuiltIn, index: u32, stream: Option<Stream>) -> Option<Stream> {
    let index = index as usize;
    with(backend, |Selection { streams, .. }| {
        if streams.len() <= index {
            streams.resize(index + 1, None);
        }
        std::mem::replace(&mut streams[index], stream)
    })
    .flatten()
}

fn with<T>(backend: BuiltIn, f: impl FnOnce(&mut Selection) -> T) -> Option<T> {
    SELECTIONS.try_with(|selections| selections.borrow_mut().get_mut(backend.place()).map(f)).ok().flatten()
}
