#![doc = include_str!("../README.md")]
#![deny(unsafe_code)] // calls into a backend are unsafe; each module that makes them allows it and proves each

mod accelerator;
mod accounting;
mod alloc;
mod backend;
mod buffer;
mod event;
mod stream;
mod summary;
mod sync;
mod types;

pub use accelerator::Accelerator;
pub use accounting::Accounting;
pub use alloc::{Allocation, AllocatorConfig, CachingAllocator, ForeignAllocation, HookId, RoundupDivisions};
pub use backend::{Backend, DevicePtr, DriverResult, EventFlags, Place, StreamKind};
pub use buffer::{Buffer, Slice, SliceMut, element_count};
pub use event::Event;
pub use stream::{STREAMS_PER_PRIORITY, Stream};
pub use summary::memory_summary;
pub use types::{
    BlockSnapshot, BlockState, Bytes, Device, DeviceCapability, DeviceKind, DeviceProperties, DriverError,
    DriverErrorKind, Error, GIB, KIB, MIB, MemoryInfo, MemoryInfoSource, OutOfMemory, OutOfMemoryCause,
    PoolKind, PoolStat, Result, SegmentSnapshot, Snapshot, Stat, Statistics, StreamId, Unavailable,
    parse_bytes, read_capacity, read_variable,
};
