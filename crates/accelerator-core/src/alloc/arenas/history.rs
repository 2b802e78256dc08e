//! Recording a history.

use super::{Arenas, in_force};
use crate::alloc::arena::Arena;
use crate::alloc::history::{CaptureContext, HistoryContext, Recorder, Recording};
use crate::sync::Guard;

impl Arenas {
    /// Records from now on what happens, or no longer, and then forgets it. While it is recorded already, what is kept stays,
    /// under the new limits.
    pub(crate) fn record_history(&self, recording: Option<Recording>) {
        let mut setup = self.setup.lock_soon();
        let config = in_force(&setup.config, self.has_virtual_memory);
        setup.recording = recording;
        // Ended first and begun last: so all that happens in between is recorded, or nothing.
        let ended = match recording {
            None => self.statistics().recorder.take(),
            Some(_) => None,
        };
        for arena in self.all() {
            arena.lock().configure(config, recording);
        }
        if let Some(recording) = recording {
            let mut statistics = self.statistics();
            let fraction = statistics.fraction;
            match &mut statistics.recorder {
                Some(recorder) => recorder.change(recording),
                None => {
                    let recorder = Recorder::new(recording, setup.config, fraction);
                    statistics.recorder = Some(Box::new(recorder));
                }
            }
        }
        drop(setup);
        drop(ended);
        self.drop_discarded();
    }

    /// Where the calling thread is, if that is recorded. The user is asked under no lock: it is let go meanwhile.
    pub(crate) fn captured<'a>(
        &'a self,
        arena: Guard<'a, Arena>,
        capture: Option<CaptureContext>,
    ) -> (Guard<'a, Arena>, Option<HistoryContext>) {
        let Some(capture) = capture else { return (arena, None) };
        let stream = arena.stream();
        drop(arena);
        let context = capture();
        (self.of(stream).lock(), context)
    }
}
