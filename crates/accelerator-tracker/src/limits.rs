//! How much a file may take while it is read.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, BufRead, Read};

use accelerator_core::{Bytes, GIB, MIB};

/// Limits on what reading one file may take, whoever wrote it. A hundred kilobytes can decompress to many gigabytes,
/// and a pickle can ask for a hundred times its size in memory. The files of real programs stay far below the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for what is held of the file at once; by default 2 GiB. While a pickle is read, the limit is
    /// also 64 MiB and 32 times the bytes read so far, unless this is `u64::MAX`. A pickle never takes 16 GiB or more.
    pub memory: u64,
    /// Bytes of a line in a text file; by default 1 MiB. The longest real lines are names of modules and settings.
    pub line: u64,
    /// Bytes that a compressed file may decompress to; by default 64 MiB. It is for programs that decompress, which
    /// this crate does not. Larger files may decompress to more: [100 times](Self::may_unpack_to) their size.
    pub unpacked: u64,
}

/// Bytes of memory for each byte of a pickle. Of real files, those of a tracker take most, since they are held
/// completely: 14. A hostile file can ask for a hundred.
const MEMORY_OF_A_BYTE: u64 = 32;

/// Added to that, for short pickles.
const MEMORY_OF_A_PICKLE: u64 = 64 * MIB;

/// The most for any pickle: the number of each of its parts fits below this.
const MEMORY_OF_ANY_PICKLE: u64 = 16 * GIB - 1;

/// Bytes that a compressed byte may decompress to. Traces and snapshots of real programs reach 10 to 20; zeros reach
/// 1,000 with gzip and 30,000 with zstd. A limit relative to the file suits files of any size. A fixed number would
/// not: real snapshots have gigabytes, which would fill a small disk.
const UNPACKED_OF_A_BYTE: u64 = 100;

impl Limits {
    /// No limits, for trusted files.
    pub const NONE: Self = Self { memory: u64::MAX, line: u64::MAX, unpacked: u64::MAX };

    /// How many bytes this many compressed bytes may decompress to.
    pub fn may_unpack_to(&self, packed: u64) -> u64 {
        self.unpacked.max(packed.saturating_mul(UNPACKED_OF_A_BYTE))
    }

    /// Bytes of memory for a pickle of which this many bytes were read.
    pub(crate) fn memory_of_pickle(&self, read: u64) -> u64 {
        let for_its_size = read.saturating_mul(MEMORY_OF_A_BYTE).saturating_add(MEMORY_OF_A_PICKLE);
        let wanted = if self.memory == u64::MAX { u64::MAX } else { self.memory.min(for_its_size) };
        wanted.min(MEMORY_OF_ANY_PICKLE)
    }

    /// Appends a line with its end to a text. Returns the bytes read, 0 at the end.
    ///
    /// # Errors
    /// Those of the reader, and [`LimitError::Line`] as the inner error of one.
    pub fn read_line(&self, reader: &mut (impl BufRead + ?Sized), text: &mut Vec<u8>) -> io::Result<usize> {
        let count = reader.take(self.line.saturating_add(1)).read_until(b'\n', text)?;
        match count as u64 > self.line {
            true => Err(io::Error::other(LimitError::Line { limit: self.line })),
            false => Ok(count),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 * GIB, line: MIB, unpacked: 64 * MIB }
    }
}

/// A file takes more than its reader was told that it may.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Of memory.
    #[error("its contents take more than {} of memory", Bytes(*limit))]
    Memory {
        /// How many bytes it may take.
        limit: u64,
    },
    /// A line.
    #[error("the line is longer than {limit} bytes")]
    Line {
        /// How many bytes it may have.
        limit: u64,
    },
    /// Unpacked.
    #[error("{} of it decompress to more than {}", Bytes(*packed), Bytes(*limit))]
    Unpacked {
        /// How many compressed bytes were read.
        packed: u64,
        /// How many bytes they may decompress to.
        limit: u64,
    },
    /// The part of it that a decoder must have at hand.
    #[error("decompressing it takes a window of {}, but at most {} is allowed", Bytes(*window), Bytes(*limit))]
    Window {
        /// Bytes of the window.
        window: u64,
        /// How many bytes it may have.
        limit: u64,
    },
}

accelerator_core::debug_as_display!(LimitError);

impl LimitError {
    /// The limit inside an error of input or output.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Counts the memory of what is held of a file.
#[derive(Clone, Debug)]
pub struct Budget {
    used: u64,
    limit: u64,
}

/// Roughly what the system's allocator adds to a piece of memory.
pub(crate) const ALLOCATION: u64 = 16;

impl Budget {
    /// A budget of this many bytes, of which none is used.
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit }
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Checks whether this many bytes more fit.
    ///
    /// # Errors
    /// [`LimitError::Memory`].
    pub fn has_room(&self, bytes: u64) -> Result<(), LimitError> {
        match self.used.saturating_add(bytes) > self.limit {
            true => Err(LimitError::Memory { limit: self.limit }),
            false => Ok(()),
        }
    }

    /// Counts bytes that are about to be used.
    ///
    /// # Errors
    /// [`LimitError::Memory`]: they are not counted then.
    pub fn charge(&mut self, bytes: u64) -> Result<(), LimitError> {
        self.has_room(bytes)?;
        self.used = self.used.saturating_add(bytes);
        Ok(())
    }

    /// Counts bytes that are no longer used.
    pub fn discharge(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used, "more is given back than was counted");
        self.used = self.used.saturating_sub(bytes);
    }

    /// Appends an element to a list whose memory is counted here.
    ///
    /// # Errors
    /// [`LimitError::Memory`].
    pub fn push<T>(&mut self, list: &mut Vec<T>, element: T) -> Result<(), LimitError> {
        self.reserve(list, 1)?;
        list.push(element);
        Ok(())
    }

    /// Makes room in a list whose memory is counted here. While the list moves, both its old and its new memory count.
    pub(crate) fn reserve<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), LimitError> {
        const FEWEST: usize = 4;
        let (length, before) = (list.len(), list.capacity());
        if before - length >= more {
            return Ok(());
        }
        let wanted = length.saturating_add(more).max(before.saturating_mul(2)).max(FEWEST);
        self.charge((wanted.saturating_mul(size_of::<T>())) as u64)?;
        list.reserve_exact(wanted - length);
        self.discharge((before * size_of::<T>()) as u64);
        Ok(())
    }

    /// Makes room in a table for one more, as [`reserve`](Self::reserve).
    pub(crate) fn reserve_in_table<K: Eq + Hash, V>(&mut self, table: &mut HashMap<K, V>) -> Result<(), LimitError> {
        if table.len() < table.capacity() {
            return Ok(());
        }
        // An eighth of the places stays free, and each place has one more byte of its own.
        let bytes = |capacity: usize| match capacity {
            0 => 0,
            capacity => ((capacity.saturating_mul(8) / 7).next_power_of_two() * (size_of::<(K, V)>() + 1)) as u64,
        };
        let before = table.capacity();
        self.charge(bytes((before + 1).max(3)))?;
        table.reserve(1);
        self.discharge(bytes(before));
        Ok(())
    }
}
