//! Snapshots of the allocators of a process with their history, as in `torch.cuda.memory._snapshot`.

mod fields;
mod frames;
mod notes;
mod parts;
mod passing;
mod read;
mod settings;
mod types;
mod visit;
mod write;

pub use read::Collector;
pub use types::{
    Annotation, Block, BlockState, DeviceNotes, Frame, Frames, MemorySnapshot, Note, NoteKind, PoolId, PoolKind,
    Segment, Setting, TraceAction, TraceEntry,
};
pub use visit::{SnapshotVisitor, Stop, visit, visit_with};

pub use crate::file::FileError;
