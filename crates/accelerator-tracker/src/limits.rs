//! Limits on the memory for reading a file.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, BufRead, Read};

use accelerator_core::{Bytes, GIB, MIB};

/// Limits for reading a file from an untrusted source. A hundred kilobytes can decompress to many gigabytes, and a
/// pickle can demand a hundred times its size in memory. Files of real programs stay far below the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The memory that the contents of the file may use at once, in bytes; by default 2 GiB. For a pickle, the memory
    /// is also limited to 64 MiB plus 32 times the bytes read so far, unless this is `u64::MAX`. A pickle can never use
    /// 16 GiB or more.
    pub memory: u64,
    /// The length of a line in a text file, in bytes; by default 1 MiB. The longest real lines are names of modules and
    /// settings.
    pub line: u64,
    /// The size to which a compressed file may decompress, in bytes; by default 64 MiB. Large files may decompress to
    /// more: [100 times](Self::may_unpack_to) their size. This crate does not decompress; the limit is for programs
    /// that do.
    pub unpacked: u64,
}

/// Bytes of memory for each byte of a pickle. Among real files, tracker files need the most, 14, since all their
/// contents are kept. A hostile file can demand a hundred.
const MEMORY_OF_A_BYTE: u64 = 32;

/// Additional memory for a pickle, so that short ones fit.
const MEMORY_OF_A_PICKLE: u64 = 64 * MIB;

/// The maximum for any pickle, so that 32 bits can number its parts.
const MEMORY_OF_ANY_PICKLE: u64 = 16 * GIB - 1;

/// Bytes that a compressed byte may decompress to. Traces and snapshots of real programs reach 10 to 20; zeros reach
/// 1,000 with gzip and 30,000 with zstd. A limit relative to the file suits files of any size. A fixed limit would not:
/// real snapshots can have gigabytes, and so large a limit would let a small file fill a small disk.
const UNPACKED_OF_A_BYTE: u64 = 100;

impl Limits {
    /// No limits, for trusted files.
    pub const NONE: Self = Self { memory: u64::MAX, line: u64::MAX, unpacked: u64::MAX };

    /// Returns how many bytes a file of `packed` compressed bytes may decompress to.
    pub fn may_unpack_to(&self, packed: u64) -> u64 {
        self.unpacked.max(packed.saturating_mul(UNPACKED_OF_A_BYTE))
    }

    /// Returns how much memory a pickle may use after `read` bytes of it were read.
    pub(crate) fn memory_of_pickle(&self, read: u64) -> u64 {
        let for_its_size = read.saturating_mul(MEMORY_OF_A_BYTE).saturating_add(MEMORY_OF_A_PICKLE);
        let wanted = if self.memory == u64::MAX { u64::MAX } else { self.memory.min(for_its_size) };
        wanted.min(MEMORY_OF_ANY_PICKLE)
    }

    /// Appends a line, including its line end, to a string. Returns the number of bytes read, which is 0 at the end.
    ///
    /// # Errors
    /// Errors of the reader, and [`LimitError::Line`] as the inner error of an [`io::Error`].
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

/// A file exceeds a limit.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Its contents need too much memory.
    #[error("its contents take more than {} of memory", Bytes(*limit))]
    Memory {
        /// The maximum number of bytes.
        limit: u64,
    },
    /// A line is too long.
    #[error("the line is longer than {limit} bytes")]
    Line {
        /// The maximum number of bytes.
        limit: u64,
    },
    /// It decompresses to too many bytes.
    #[error("its first {} decompress to more than {}", Bytes(*packed), Bytes(*limit))]
    Unpacked {
        /// The number of compressed bytes that were read.
        packed: u64,
        /// The maximum number of decompressed bytes.
        limit: u64,
    },
    /// The decoder would need too large a window.
    #[error("decompressing it needs a window of {}, but at most {} is allowed", Bytes(*window), Bytes(*limit))]
    Window {
        /// The size of the window in bytes.
        window: u64,
        /// The maximum size in bytes.
        limit: u64,
    },
}

accelerator_core::debug_as_display!(LimitError);

impl LimitError {
    /// Returns the limit error inside an I/O error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Counts the memory that the contents of a file use.
#[derive(Clone, Debug)]
pub struct Budget {
    used: u64,
    limit: u64,
}

/// The approximate overhead of the system's allocator for an allocation, in bytes.
pub(crate) const ALLOCATION: u64 = 16;

impl Budget {
    /// Creates a budget of this many bytes. None is used.
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit }
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Checks whether this many additional bytes fit.
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
    /// [`LimitError::Memory`]. The bytes are then not counted.
    pub fn charge(&mut self, bytes: u64) -> Result<(), LimitError> {
        self.has_room(bytes)?;
        self.used = self.used.saturating_add(bytes);
        Ok(())
    }

    /// Counts bytes that are no longer used.
    pub fn discharge(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used, "more bytes are given back than were counted");
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

    /// Reserves room in a list whose memory is counted here. While the list moves, both its old and its new memory
    /// count.
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

    /// Reserves room in a table for one more entry, like [`reserve`](Self::reserve).
    pub(crate) fn reserve_in_table<K: Eq + Hash, V>(&mut self, table: &mut HashMap<K, V>) -> Result<(), LimitError> {
        if table.len() < table.capacity() {
            return Ok(());
        }
        // An eighth of the slots stays free, and each slot needs one additional byte.
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
