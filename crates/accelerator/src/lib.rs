#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// Bottom up: `backends` lists the backends, with the enums and the `match` over them. `choice` determines the current
// accelerator, `selection` stores the current device of each thread, and `restore` restores it and the current streams
// for guards. `device_arg` finds the device that an argument names. The public interface builds on these modules.
mod backends;
mod buffer;
mod choice;
mod current;
mod device;
mod device_arg;
mod event;
mod graph;
mod guard;
mod mem_pool;
pub mod memory;
mod memory_common;
mod pinned;
mod restore;
mod selection;
mod stream;
mod typed;
mod view;

pub use accelerator_core as core;
pub use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, BlockSnapshot, BlockState, Bytes, CaptureContext, CaptureMode, ContextsOf,
    Device, DeviceCapability, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DurationStat, Error,
    EventFlags, GIB, History, HistoryAction, HistoryContext, HistoryEntry, HostOutOfMemory, HostStatistics, KIB, Keep,
    MIB, MemPoolId, MemPoolInfo, MemPoolOptions, MemoryHandle, MemoryInfo, MemoryInfoSource, Operator, OperatorKind,
    OperatorObserver, OutOfMemory, OutOfMemoryCause, PauseReport, PoolFileError, PoolKind, PoolStat, Recording, Result,
    SegmentSnapshot, SegmentSource, SharingProblem, Snapshot, Stat, Statistics, StreamId, TraceAction, Unavailable,
    observe_operators, parse_bytes, report_operator,
};
#[allow(unused_imports, unreachable_pub, reason = "empty in a build without backends")]
pub use backends::crates::*;
pub use buffer::Buffer;
pub use bytemuck;
pub use choice::{BackendStatus, backends, current_accelerator, device_count, is_available, set_accelerator};
#[allow(deprecated)]
pub use current::{
    current_device_idx, current_device_index, current_stream, exchange_device_index, get_device_capability,
    get_device_properties, is_current_stream_capturing, set_device_idx, set_device_index, set_stream, synchronize,
};
pub use device_arg::DeviceArg;
pub use event::Event;
pub use graph::{CaptureOptions, Graph, GraphCapture, generate_graph_pool_handle, graph, graph_pool_handle};
pub use guard::{DeviceIndexGuard, StreamGuard, device_index};
pub use mem_pool::{MemPool, MemPoolGuard, MemPoolRequests, use_mem_pool};
// `torch.accelerator` also has these at its root.
pub use memory::{
    empty_cache, empty_host_cache, get_memory_info, max_memory_allocated, max_memory_reserved, memory_allocated,
    memory_reserved, memory_stats, reset_accumulated_memory_stats, reset_peak_memory_stats,
};
pub use pinned::PinnedBuffer;
pub use stream::Stream;
pub use typed::typed;
pub use view::{Slice, SliceMut};
