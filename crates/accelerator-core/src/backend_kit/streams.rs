//! All streams of a device.

use std::sync::{Arc, Mutex, Weak};

use crate::sync::lock;

/// All streams of a device, for what must wait for all work, such as freeing memory.
///
/// They are held weakly, so that a stream ends with its owner. `T` is the part of a stream that can be waited for; it
/// must stay alive while work of the stream may still run.
///
/// ```
/// use std::sync::Arc;
///
/// use accelerator_core::backend_kit::Streams;
///
/// let streams = Streams::new();
/// let (first, second) = (Arc::new("first"), Arc::new("second"));
/// streams.add(&first);
/// streams.add(&second);
/// drop(first);
/// assert_eq!(streams.alive(), [second]);
/// ```
#[derive(Debug)]
pub struct Streams<T>(Mutex<Vec<Weak<T>>>);

impl<T> Streams<T> {
    /// Makes a list without streams.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds a stream. Those that have ended are forgotten.
    pub fn add(&self, stream: &Arc<T>) {
        let mut streams = lock(&self.0);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Returns the streams that have not ended, in the order in which they were added. No lock is held while the caller
    /// waits for them, so other threads can make streams meanwhile.
    pub fn alive(&self) -> Vec<Arc<T>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_have_ended_take_no_room() {
        let streams = Streams::new();
        let kept = Arc::new(0);
        streams.add(&kept);
        for number in 1..100 {
            streams.add(&Arc::new(number));
        }
        assert_eq!(streams.alive(), [Arc::clone(&kept)]);
        assert_eq!(lock(&streams.0).len(), 2, "the one that is alive, and the last one");
    }
}
