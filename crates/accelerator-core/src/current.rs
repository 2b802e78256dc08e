//! The current stream of each thread, which decides whether a free is part of a capture.

use std::cell::RefCell;

use crate::stream::Instance;
use crate::types::StreamId;

thread_local! {
    /// The current streams of this thread, where they are not the default stream.
    static CURRENT: RefCell<Vec<(Instance, StreamId)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the current stream of this thread; the default stream while the thread ends.
pub(crate) fn current_stream(of: Instance) -> StreamId {
    let current = CURRENT.try_with(|all| all.borrow().iter().find(|(instance, _)| *instance == of).copied());
    current.ok().flatten().map_or(StreamId::DEFAULT, |(_, stream)| stream)
}

pub(crate) fn set_current_stream(of: Instance, stream: StreamId) {
    let _ = CURRENT.try_with(|all| {
        let mut all = all.borrow_mut();
        all.retain(|(instance, _)| *instance != of);
        if stream != StreamId::DEFAULT {
            all.push((of, stream));
        }
    });
}
