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

/// What to record of a device's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// What keeps the place where it happened: the scope of the tracker, the metadata, the stack.
    pub contexts: ContextsOf,
    /// So many entries are kept, the newest.
    pub max_entries: usize,
    /// Whether a place has the calls on the way to it.
    pub stacks: Stacks,
}

/// Calls on the way to an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stacks {
    /// None are captured.
    None,
    /// Those of the program: their addresses, which get their names when a snapshot is taken.
    Rust,
}

impl Default for HistoryOptions {
    /// Everything, as in PyTorch.
    fn default() -> Self {
        Self { contexts: ContextsOf::All, max_entries: usize::MAX, stacks: Stacks::Rust }
    }
}

impl HistoryOptions {
    /// What the core is to record, for a device that is not the facade's.
    pub fn recording(self) -> Recording {
        let Self { contexts, max_entries, stacks } = self;
        let capture = match stacks {
            Stacks::None => place::without_stack,
            Stacks::Rust => place::with_stack,
        };
        Recording { max_entries, contexts, capture: Some(capture) }
    }
}

/// Records from now on what happens in a device's allocator. While it is recorded already, what is kept stays. Opens the
/// device. PyTorch: `torch.cuda.memory._record_memory_history`.
///
/// # Errors
/// As [`DeviceArg`] says; what opening the device can fail with.
pub fn record_memory_history<'a>(options: HistoryOptions, device: impl Into<DeviceArg<'a>>) -> Result<()> {
    memory::record_history(device, Some(options.recording()))
}

/// Records no longer what happens in a device's allocator, and forgets it. PyTorch:
/// `_record_memory_history(enabled=None)`.
///
/// # Errors
/// As [`record_memory_history`].
pub fn stop_memory_history<'a>(device: impl Into<DeviceArg<'a>>) -> Result<()> {
    memory::record_history(device, None)
}

/// What the allocators of all opened devices of the current accelerator hold, and their histories; that of one device is of one
/// moment. Here the stacks get their names, which takes a while for each that is new. PyTorch: `torch.cuda.memory._snapshot`.
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
/// As [`snapshot`]; [`DumpError::File`] for a file that cannot be written, and then one that was there before is as it was.
pub fn dump_snapshot(path: impl AsRef<Path>) -> Result<(), DumpError> {
    Ok(snapshot()?.write(path.as_ref())?)
}

/// Why there is no file with a snapshot.
#[derive(thiserror::Error)]
pub enum DumpError {
    /// The accelerator says.
    #[error(transparent)]
    Accelerator(#[from] accelerator::Error),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

accelerator_core::debug_as_display!(DumpError);
