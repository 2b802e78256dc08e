//! The headroom of all streams in one arena without waiting, if this thread owns the arenas.

use super::{Arenas, Setup};
use crate::alloc::arena::{Arena, ArenaId};
use crate::alloc::stats::{Counting, NeedsSettling};

/// One of so many operations is left to [`Entered::settle`](super::Entered::settle), which finds the streams that have
/// become idle.
const LEFT_TO_SETTLE: u32 = 32;

/// With more active arenas than this, headroom is not gathered, since each takes a stack frame.
const MOST_ARENAS: usize = 256;

impl Arenas {
    /// Performs an operation, and if it needs settling, repeats it with [gathered](Self::gathered) headroom.
    #[inline(always)]
    pub(crate) fn perhaps_gathered<T>(
        &self,
        arena: &mut Arena,
        operation: impl Fn(&mut Arena) -> Counting<T>,
    ) -> Counting<T> {
        operation(arena).or_else(|_| self.gathered(arena, operation))
    }

    /// Repeats an operation that needs settling, with the headroom of all streams in hand. This takes a fraction of the
    /// time of [`Entered::settle`](super::Entered::settle). It is possible if this thread owns all active arenas, as it
    /// does in a program that allocates for several streams from one thread. Otherwise the operation still needs
    /// settling, and headroom that was gathered by then stays here.
    #[cold]
    #[inline(never)]
    fn gathered<T>(&self, arena: &mut Arena, operation: impl FnOnce(&mut Arena) -> Counting<T>) -> Counting<T> {
        // What is refused to a stream that is alone needs something else.
        if arena.counters().is_alone {
            return Err(NeedsSettling);
        }
        let mut setup = self.setup.lock_owned().ok_or(NeedsSettling)?;
        let Setup { active, gathered, .. } = &mut *setup;
        *gathered = (*gathered + 1) % LEFT_TO_SETTLE;
        if *gathered == 0 || active.len() > MOST_ARENAS || !active.contains(&arena.id()) {
            return Err(NeedsSettling);
        }
        self.with_headroom_of(active, arena, operation)
    }

    /// Takes the headroom of these arenas, and holds them until the operation is over.
    fn with_headroom_of<T>(
        &self,
        others: &[ArenaId],
        arena: &mut Arena,
        operation: impl FnOnce(&mut Arena) -> Counting<T>,
    ) -> Counting<T> {
        let Some((first, rest)) = others.split_first() else {
            arena.counters_mut().is_alone = true;
            let done = operation(arena);
            arena.counters_mut().is_alone = false;
            return done;
        };
        if *first == arena.id() {
            return self.with_headroom_of(rest, arena, operation);
        }
        let mut other = self.of(*first).lock_owned().ok_or(NeedsSettling)?;
        arena.counters_mut().take_headroom(other.counters_mut());
        self.with_headroom_of(rest, arena, operation)
    }
}
