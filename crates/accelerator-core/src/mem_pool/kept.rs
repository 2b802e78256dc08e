//! The contents of a paused pool: kept in pinned host memory, or in a file.
#![allow(unsafe_code)] // `Backend::copy`, `Backend::dealloc_host`

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::sleep::{Keep, PauseProgress};
use crate::accelerator::Accelerator;
use crate::backend::{Backend, Place};
use crate::types::{DevicePtr, DriverResult, Error, MIB, MemPoolId, PoolFileError, Result};

/// The number of bytes that are copied at a time.
const STEP: u64 = 32 * MIB;

/// The contents of a pool's pages.
pub(super) struct Kept<B: Backend> {
    accelerator: &'static Accelerator<B>,
    pool: MemPoolId,
    /// Where the bytes belong, piece by piece.
    pieces: Vec<Piece<B::Ptr>>,
    bytes: Bytes<B>,
}

#[derive(Clone, Copy)]
struct Piece<P> {
    at: P,
    len: NonZeroU64,
}

enum Bytes<B: Backend> {
    Discarded,
    /// One block for each piece.
    InHost(Vec<HostBlock<B>>),
    /// The pieces one after another.
    InFile(TemporaryFile),
}

/// Pinned host memory.
struct HostBlock<B: Backend> {
    backend: &'static B,
    start: NonNull<u8>,
    len: NonZeroU64,
}

// SAFETY: The block owns its memory, and gives access to it only through its own references.
unsafe impl<B: Backend> Send for HostBlock<B> {}
// SAFETY: As above.
unsafe impl<B: Backend> Sync for HostBlock<B> {}

impl<B: Backend> HostBlock<B> {
    fn new(backend: &'static B, len: NonZeroU64) -> DriverResult<Self> {
        Ok(Self { backend, start: backend.alloc_host(len)?, len })
    }

    fn bytes(&mut self, len: NonZeroU64) -> &mut [u8] {
        let len = len.min(self.len).get() as usize;
        // SAFETY: The block owns at least this many bytes, which `alloc_host` has initialised. Copies are waited for,
        // so nothing else accesses them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }
}

impl<B: Backend> Drop for HostBlock<B> {
    fn drop(&mut self) {
        // SAFETY: The memory comes from `alloc_host` and is given back once. All copies have been waited for.
        unsafe { self.backend.dealloc_host(self.start, self.len) }
    }
}

/// A file that is removed when this is dropped.
struct TemporaryFile {
    file: File,
    path: PathBuf,
}

impl TemporaryFile {
    /// Makes a file, where there must be none, that only its owner can read.
    fn new(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        Ok(Self { file, path: path.to_owned() })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // it may have been removed already
    }
}

/// The direction of a copy.
#[derive(Clone, Copy)]
enum Direction {
    ToHost,
    ToDevice,
}

impl<B: Backend> Kept<B> {
    /// Keeps nothing of a pool yet.
    pub(super) fn nothing(accelerator: &'static Accelerator<B>, pool: MemPoolId) -> Self {
        Self { accelerator, pool, pieces: Vec::new(), bytes: Bytes::Discarded }
    }

    /// Keeps the contents of these runs of memory, on which no work is running.
    pub(super) fn save(
        &mut self,
        keep: Keep,
        runs: &[(B::Ptr, u64)],
        progress: &mut dyn FnMut(PauseProgress),
    ) -> Result<()> {
        self.pieces = runs.iter().flat_map(|(at, len)| pieces(*at, *len)).collect();
        let total = self.pieces.iter().map(|piece| piece.len.get()).sum();
        let mut progress = Counter { done: 0, total, report: progress };
        let backend = self.accelerator.backend();
        match keep {
            Keep::Nothing => self.pieces.clear(),
            Keep::Host => {
                let mut blocks = Vec::with_capacity(self.pieces.len());
                for piece in &self.pieces {
                    let block = self.driver(HostBlock::new(backend, piece.len))?;
                    self.driver(self.copy(*piece, &block, 0, Direction::ToHost))?;
                    blocks.push(block);
                    progress.add(piece.len);
                }
                self.bytes = Bytes::InHost(blocks);
            }
            Keep::File(path) => {
                let mut to = TemporaryFile::new(&path).map_err(|error| self.file_error(&path, error))?;
                let mut staging = self.driver(HostBlock::new(backend, longest(&self.pieces)))?;
                for piece in &self.pieces {
                    self.driver(self.copy(*piece, &staging, 0, Direction::ToHost))?;
                    let written = to.file.write_all(staging.bytes(piece.len));
                    written.map_err(|error| self.file_error(&path, error))?;
                    progress.add(piece.len);
                }
                self.bytes = Bytes::InFile(to);
            }
        }
        Ok(())
    }

    /// Copies the contents back, as far as they are in these runs, which are the memory that the pool still has. They
    /// are still kept then, also if `progress` panics.
    pub(super) fn restore(&self, runs: &[(B::Ptr, u64)], progress: &mut dyn FnMut(PauseProgress)) -> Result<()> {
        let total = self.pieces.iter().map(|piece| piece.len.get()).sum();
        let mut progress = Counter { done: 0, total, report: progress };
        match &self.bytes {
            Bytes::Discarded => Ok(()),
            Bytes::InHost(blocks) => self.pieces.iter().zip(blocks).try_for_each(|(piece, block)| {
                self.driver(self.copy_back(*piece, block, runs))?;
                progress.add(piece.len);
                Ok(())
            }),
            Bytes::InFile(from) => self.restore_from(from, runs, &mut progress),
        }
    }

    fn restore_from(&self, from: &TemporaryFile, runs: &[(B::Ptr, u64)], progress: &mut Counter<'_>) -> Result<()> {
        let (mut file, path) = (&from.file, &from.path);
        let mut staging = self.driver(HostBlock::new(self.accelerator.backend(), longest(&self.pieces)))?;
        file.rewind().map_err(|error| self.file_error(path, error))?;
        for piece in &self.pieces {
            file.read_exact(staging.bytes(piece.len)).map_err(|error| self.file_error(path, error))?;
            self.driver(self.copy_back(*piece, &staging, runs))?;
            progress.add(piece.len);
        }
        Ok(())
    }

    /// Copies the parts of a piece back that are in these runs.
    fn copy_back(&self, piece: Piece<B::Ptr>, block: &HostBlock<B>, runs: &[(B::Ptr, u64)]) -> DriverResult<()> {
        let start = piece.at.trace_address();
        runs.iter().try_for_each(|(at, len)| {
            let run = at.trace_address();
            let (from, to) = (run.max(start), (run + len).min(start + piece.len.get()));
            let Some(len) = to.checked_sub(from).and_then(NonZeroU64::new) else { return Ok(()) };
            let offset = from - start;
            self.copy(Piece { at: piece.at.offset(offset), len }, block, offset, Direction::ToDevice)
        })
    }

    /// Copies a piece from or to this offset in a block, and waits.
    fn copy(&self, piece: Piece<B::Ptr>, block: &HostBlock<B>, offset: u64, direction: Direction) -> DriverResult<()> {
        debug_assert!(offset + piece.len.get() <= block.len.get(), "the block is long enough");
        // SAFETY: The callers copy no more than the block has behind the offset.
        let place = unsafe { block.start.add(offset as usize) };
        let (device, host) = (Place::Device(piece.at), Place::Host(place));
        let (to, from) = match direction {
            Direction::ToHost => (host, device),
            Direction::ToDevice => (device, host),
        };
        let (backend, stream) = (self.accelerator.backend(), self.accelerator.default_stream());
        stream.refuse_capture()?;
        // SAFETY: The pool has mapped pages at the piece, which nothing else uses while the pool is closed, and which
        // stay while the pool is kept, or the allocator knows of a copy. The block has as many bytes there, and is not
        // used before `synchronize` has returned. No graph has the copy, since the stream does not capture.
        unsafe { backend.copy(to, from, piece.len, stream.native()) }?;
        let waited = backend.synchronize(stream.native());
        waited.inspect_err(|_| self.accelerator.allocator().note_copy(self.pool))
    }

    fn driver<T>(&self, result: DriverResult<T>) -> Result<T> {
        self.accelerator.device().driver_result(result)
    }

    fn file_error(&self, path: &Path, error: io::Error) -> Error {
        let (device, pool) = (self.accelerator.device(), self.pool);
        let name = self.accelerator.allocator().pool_name(pool);
        Error::PoolFile(Box::new(PoolFileError { device, pool, name, path: path.to_owned(), error }))
    }
}

/// Divides a run of memory into pieces.
fn pieces<P: DevicePtr>(at: P, len: u64) -> impl Iterator<Item = Piece<P>> {
    (0..len).step_by(STEP as usize).filter_map(move |offset| {
        let len = NonZeroU64::new((len - offset).min(STEP))?;
        Some(Piece { at: at.offset(offset), len })
    })
}

fn longest<P>(pieces: &[Piece<P>]) -> NonZeroU64 {
    pieces.iter().map(|piece| piece.len).max().unwrap_or(NonZeroU64::MIN)
}

/// Reports how many bytes are copied.
struct Counter<'a> {
    done: u64,
    total: u64,
    report: &'a mut dyn FnMut(PauseProgress),
}

impl Counter<'_> {
    fn add(&mut self, len: NonZeroU64) {
        self.done += len.get();
        (self.report)(PauseProgress { done: self.done, total: self.total });
    }
}
