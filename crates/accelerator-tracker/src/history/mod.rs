//! The history of a device's allocator, and snapshots with it. PyTorch: `torch.cuda.memory._record_memory_history`,
//! `_snapshot` and `_dump_snapshot`.

mod convert;
mod place;
mod settings;
mod stack;

use std::path::Path;

use accelerator::{DeviceArg, Recording, Result, get_device_properties, memory};
pub use accelerator_core::ContextsOf;

pub use place::set_memory_metadata;

use crate::file::FileError;
use crate::snapshot::MemorySnapshot;

/// What to record in the history of a device's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Which entries record their place: the scope of the tracker, the metadata and the stack.
    pub contexts: ContextsOf,
    /// The maximum number of entries. The newest are kept.
    pub max_entries: usize,
    /// Whether a place includes the call stack.
    pub stacks: Stacks,
}

/// The call stack of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stacks {
    /// Stacks are not captured.
    None,
    /// Stacks of the program are captured as addresses. Their names are looked up when a snapshot is taken.
    Rust,
}

impl Default for HistoryOptions {
    /// Records everything, as PyTorch does.
    fn default() -> Self {
        Self { contexts: ContextsOf::All, max_entries: usize::MAX, stacks: Stacks::Rust }
    }
}

impl HistoryOptions {
    /// Returns the same options for the core, to record a device that does not belong to the facade.
    pub fn recording(self) -> Recording {
        let Self { contexts, max_entries, stacks } = self;
        let capture = match stacks {
            Stacks::None => place::without_stack,
            Stacks::Rust => place::with_stack,
        };
        Recording { max_entries, contexts, capture: Some(capture) }
    }
}

/// Starts to record the history of a device's allocator, and opens the device. If a history is already being recorded,
/// earlier entries stay. PyTorch: `torch.cuda.memory._record_memory_history`.
///
/// # Errors
/// Errors that [`DeviceArg`] describes; errors of opening the device.
pub fn record_memory_history<'a>(options: HistoryOptions, device: impl Into<DeviceArg<'a>>) -> Result<()> {
    memory::record_history(device, Some(options.recording()))
}

/// Stops recording the history of a device's allocator, and discards it. PyTorch:
/// `_record_memory_history(enabled=None)`.
///
/// # Errors
/// The errors of [`record_memory_history`].
pub fn stop_memory_history<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    memory::record_history(device, None)
}

/// Returns the contents and histories of the allocators of all open devices of the current accelerator. The contents
/// and the history of a device are consistent with each other. Looks up the names of stacks, which takes time for each
/// new address. PyTorch: `torch.cuda.memory._snapshot`.
///
/// # Errors
/// [`Error::NoAccelerator`](accelerator::Error::NoAccelerator),
/// [`Error::UnknownBackend`](accelerator::Error::UnknownBackend).
pub fn snapshot() -> Result<MemorySnapshot> {
    let mut snapshot = MemorySnapshot::default();
    for (device, history) in memory::histories()? {
        snapshot.add(device, get_device_properties(device)?, &history);
    }
    Ok(snapshot)
}

/// Writes a [`snapshot`] to a file that PyTorch's tools read: `_memory_viz.py` and pytorch.org/memory_viz. PyTorch:
/// `torch.cuda.memory._dump_snapshot`.
///
/// # Errors
/// The errors of [`snapshot`]; [`DumpError::File`] if the file cannot be written. An existing file is then unchanged.
pub fn dump_snapshot(path: impl AsRef<Path>) -> Result<(), DumpError> {
    Ok(snapshot()?.write(path.as_ref())?)
}

/// Why no snapshot was written.
#[derive(thiserror::Error)]
pub enum DumpError {
    /// An error of the accelerator.
    #[error(transparent)]
    Accelerator(#[from] accelerator::Error),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

accelerator_core::debug_as_display!(DumpError);
