#![doc = include_str!("../README.md")]
#![deny(unsafe_code)] // calls into a backend are unsafe: each module that makes them proves each call

mod accelerator;
mod alloc;
mod backend;
pub mod backend_kit;
mod buffer;
mod current;
mod event;
mod graph;
mod graphs;
mod host_memory;
mod imported;
mod interprocess;
mod mem_pool;
mod mem_source;
mod operator;
mod peer;
mod pinned;
mod share;
mod stream;
mod sync;
mod types;
mod virtual_memory;

pub use accelerator::Accelerator;
#[doc(hidden)]
pub use alloc::ChunkLengths;
pub use alloc::{
    Allocation, AllocationKey, AllocatorConfig, CachingAllocator, CaptureContext, ContextsOf, ForeignAllocation,
    History, HistoryAction, HistoryContext, HistoryEntry, MemPoolRequests, MemPoolRoute, Policy, PoolCheckpoint,
    Recording, RestoreError, RestoredKeys, RestoredPool, RoundupDivisions,
};
pub use backend::{Backend, EventFlags, PeerCopies, Place, StreamKind};
pub use backend_kit::{Accounting, read_capacity, read_variable};
pub use buffer::{Buffer, BufferUse, Slice, SliceMut, View, element_count};
pub use event::Event;
pub use graph::Graph;
pub use graphs::{CaptureMode, ExecutableGraph, Graphs};
pub use interprocess::{Exported, Interprocess};
pub use mem_pool::{Keep, MemPool, MemPoolGuard, MemPoolOptions, PauseProgress, PauseReport};
pub use mem_source::SegmentSource;
pub use operator::{Operator, OperatorKind, OperatorObserver, observe_operators, report_operator};
pub use pinned::{CachingHostAllocator, PinnedBuffer};
pub use share::{MemoryHandle, SharedMemory};
pub use stream::{STREAMS_PER_PRIORITY, Stream};
pub use sync::HookId;
pub use types::{
    BlockSnapshot, BlockState, Bytes, Device, DeviceCapability, DeviceKind, DeviceProperties, DevicePtr, DriverError,
    DriverErrorKind, DriverResult, DurationStat, Error, GIB, HostOutOfMemory, HostStatistics, KIB, MIB, MemPoolId,
    MemPoolInfo, MemoryInfo, MemoryInfoSource, OutOfMemory, OutOfMemoryCause, PciAddress, PoolFileError, PoolKind,
    PoolStat, Result, SegmentSnapshot, SharingProblem, Snapshot, Stat, Statistics, StreamId, TraceAction, Unavailable,
    Uuid, parse_bytes, printable,
};
pub use virtual_memory::{Pages, VirtualMemory};
