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

    /// The numbers of private pools' arenas have this bit. No device has so many streams.
    const PRIVATE: u32 = 1 << 31;

    /// Returns the stream's own arena.
    #[inline(always)]
    pub(crate) const fn of_stream(stream: StreamId) -> Self {
        Self(stream.get())
    }

    /// Returns the arena with this number among those of private pools.
    pub(crate) const fn private(number: u32) -> Self {
        Self(Self::PRIVATE | number)
    }

    /// Returns the number among the arenas of private pools, if it is one of them.
    pub(crate) fn number_of_private(self) -> Option<u32> {
        (self != Self::SHARED && self.0 & Self::PRIVATE != 0).then_some(self.0 & !Self::PRIVATE)
    }

    #[inline(always)]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}
