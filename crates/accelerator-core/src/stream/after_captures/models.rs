use std::sync::Arc;

use super::*;
use crate::sync::primitives::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::primitives::{explore, thread};

#[derive(Default)]
struct Shared {
    captures: CaptureCount,
    waiting: AfterCaptures,
    /// Whether the only stream captures.
    is_capturing: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
}

impl Shared {
    /// Begins a capture.
    fn new() -> Arc<Self> {
        let shared = Self::default();
        shared.captures.begins();
        shared.is_capturing.store(true, Ordering::SeqCst);
        Arc::new(shared)
    }

    fn end_capture(&self) {
        self.is_capturing.store(false, Ordering::SeqCst);
        self.captures.ended();
        self.waiting.capture_ended(&self.captures);
    }

    /// Adds something that can be done while the stream does not capture.
    fn add(&self) {
        let (is_capturing, done) = (Arc::clone(&self.is_capturing), Arc::clone(&self.done));
        self.waiting.add(&self.captures, move || {
            let may_begin = !is_capturing.load(Ordering::SeqCst);
            if may_begin {
                done.fetch_add(1, Ordering::SeqCst);
            }
            may_begin
        });
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }
}

#[test]
fn nothing_is_left_waiting_for_a_capture_that_has_ended() {
    explore(4, || {
        let shared = Shared::new();
        shared.add();
        assert_eq!(shared.done(), 0);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || other.add());
        shared.end_capture();
        other.join().unwrap();
        assert_eq!(shared.done(), 2, "each is done once");
    });
}
