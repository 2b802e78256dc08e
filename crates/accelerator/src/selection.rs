//! What each thread has selected: the current device, and on each device the current stream.
//!
//! Per thread and backend. A thread that is ending, whose selection is gone, sees device 0 and default streams.

use std::cell::RefCell;

use crate::backends::{BuiltIn, ENTRIES};
use crate::stream::Stream;

#[derive(Default)]
struct Selection {
    index: u32,
    /// By device index; `None`: the default stream, which nobody has asked for yet.
    streams: Vec<Option<Stream>>,
}

thread_local! {
    static SELECTIONS: RefCell<[Selection; ENTRIES.len()]> = RefCell::default();
}

/// The current device.
pub(crate) fn index(backend: BuiltIn) -> u32 {
    with(backend, |selection| selection.index).unwrap_or_default()
}

/// Makes a device current, which must exist, and returns the one that was.
pub(crate) fn exchange_index(backend: BuiltIn, index: u32) -> u32 {
    with(backend, |selection| std::mem::replace(&mut selection.index, index)).unwrap_or_default()
}

/// The current stream of a device, if any was selected or asked for.
pub(crate) fn stream(backend: BuiltIn, index: u32) -> Option<Stream> {
    with(backend, |selection| *selection.streams.get(index as usize)?).flatten()
}

/// Makes a stream the current one of a device, or with `None` the default stream. Returns what [`stream`] returned.
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
