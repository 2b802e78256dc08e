//! The numbers of arenas.

use crate::types::StreamId;

/// The number of an arena among those of its device.
///
/// It is not a [`StreamId`], because not every arena serves a single stream. A stream's own arena has the stream's
/// number, so that the warm path gets from one to the other at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArenaId(u32);

impl ArenaId {
    /// The arena that all streams share.
    pub(crate) const SHARED: Self = Self(u32::MAX);

    /// Returns the stream's own arena.
    #[inline(always)]
    pub(crate) const fn of_stream(stream: StreamId) -> Self {
        Self(stream.get())
    }

    #[inline(always)]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}
