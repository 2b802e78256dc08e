//! Switching the recording of a history on and off.

use super::{Arenas, in_force};
use crate::alloc::arena::Arena;
use crate::alloc::history::{CaptureContext, HistoryContext, Recorder, Recording};
use crate::sync::Guard;

impl Arenas {
    /// Starts recording, or with `None` stops it and discards the history. If recording is already on, the existing
    /// entries are kept, within the new limit.
    pub(crate) fn record_history(&self, recording: Option<Recording>) {
        let mut setup = self.setup.lock_soon();
        let config = in_force(&setup.config, self.has_virtual_memory);
        setup.recording = recording;
        // The recorder is removed before the arenas change, or created after, so at any time all of them are recorded
        // or none.
        let ended = recording.is_none().then(|| self.statistics().recorder.take());
        for arena in self.all() {
            arena.lock().configure(config, recording);
        }
        if let Some(recording) = recording {
            let mut statistics = self.statistics();
            let fraction = statistics.fraction;
            let new = || Box::new(Recorder::new(recording, setup.config, fraction));
            statistics.recorder.get_or_insert_with(new).change(recording);
        }
        drop(setup);
        drop(ended);
        self.drop_discarded();
    }

    /// Captures the context of the calling thread, if contexts are recorded. The user's function is called without a
    /// lock, so the arena is unlocked meanwhile.
    pub(crate) fn captured<'a>(
        &'a self,
        arena: Guard<'a, Arena>,
        capture: Option<CaptureContext>,
    ) -> (Guard<'a, Arena>, Option<HistoryContext>) {
        let Some(capture) = capture else { return (arena, None) };
        let id = arena.id();
        drop(arena);
        let context = capture();
        (self.of(id).lock(), context)
    }
}
