//! The numbers of arenas.

use crate::types::StreamId;

/// The number of an arena among those of its device.
///
/// It is not a [`StreamId`], because not every arena serves a single stream. A stream's own arena has the stream's
/// number, so that the warm path gets from one to the other at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ArenaId(u32);

/// In a packed number: the bit of private pools, and the arena that all streams share.
const PACKED_PRIVATE: u32 = 1 << 23;
const PACKED_SHARED: u32 = (1 << 24) - 1;

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

    /// Returns the number in 24 bits, unless it is too high.
    #[inline(always)]
    pub(crate) const fn packed(self) -> Option<u32> {
        /// The bits between that of private pools and those that are packed.
        const DROPPED: u32 = ArenaId::PRIVATE - PACKED_PRIVATE;
        match self {
            Self::SHARED => Some(PACKED_SHARED),
            Self(number) if number & DROPPED != 0 || number == Self::PRIVATE | (PACKED_PRIVATE - 1) => None,
            Self(number) => Some(number >> 8 & PACKED_PRIVATE | number & (PACKED_PRIVATE - 1)),
        }
    }

    /// Returns the arena of a packed number.
    #[inline(always)]
    pub(crate) const fn unpacked(packed: u32) -> Self {
        match packed {
            PACKED_SHARED => Self::SHARED,
            _ => Self((packed & PACKED_PRIVATE) << 8 | packed & (PACKED_PRIVATE - 1)),
        }
    }

    #[inline(always)]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_are_those_of_one_arena() {
        let most = (1 << 23) - 1;
        let packed = [0, 1, most, 1 << 31, 1 << 31 | 7, 1 << 31 | (most - 1), u32::MAX].map(ArenaId);
        for arena in packed {
            let number = arena.packed().unwrap();
            assert!(number < 1 << 24);
            assert_eq!(ArenaId::unpacked(number), arena);
        }
        for too_high in [1 << 23, 1 << 30, 1 << 31 | most, 1 << 31 | 1 << 23, u32::MAX - 1] {
            assert_eq!(ArenaId(too_high).packed(), None, "{too_high:#x}");
        }
    }
}
