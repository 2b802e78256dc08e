//! The thread that looks for blocks that streams have finished using, if the settings ask for one.

use std::thread;
use std::time::Duration;

use super::CachingHostAllocator;
use crate::backend::Backend;
use crate::sync::primitives::atomic::Ordering;

/// How long the thread sleeps between two checks, as in PyTorch.
const PAUSE: Duration = Duration::from_micros(100);

impl<B: Backend> CachingHostAllocator<B> {
    /// Starts the thread unless it is running. It ends when the settings no longer ask for it.
    #[cold]
    pub(super) fn start_background(&'static self) {
        if self.background.swap(true, Ordering::AcqRel) {
            return;
        }
        let started = thread::Builder::new().name("accelerator-pinned".to_owned()).spawn(|| {
            while self.settings.uses_background_thread() {
                // An event that the driver cannot query is queried again next time.
                let _ = self.process_events();
                thread::sleep(PAUSE);
            }
            self.background.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.background.store(false, Ordering::Release);
            let _ = self.process_events();
        }
    }
}
