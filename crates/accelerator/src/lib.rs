#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// From the bottom: `backends` has the list of them, with the enums and the `match` over whichever it is; `choice` says which
// is the current accelerator, `selection` what each thread has selected on it, `device_arg` which device an argument
// names. The public interface stands on these.
mod backends;
mod buffer;
mod choice;
mod current;
mod device;
mod device_arg;
mod event;
mod guard;
pub mod memory;
mod memory_common;
mod pinned;
mod selection;
mod stream;
mod typed;
mod view;

pub use accelerator_core as core;
pub use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, BlockSnapshot, BlockState, Bytes, CaptureContext, ContextsOf,
    Device, DeviceCapability, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DurationStat,
    Error, GIB, History, HistoryAction, HistoryContext, HistoryEntry, HostOutOfMemory, HostStatistics, KIB,
    MIB, MemoryInfo, MemoryInfoSource, Operator, OperatorKind, OperatorObserver, OutOfMemory,
    OutOfMemoryCause, PoolKind, PoolStat, Recording, Result, SegmentSnapshot, Snapshot, Stat, Statistics,
    StreamId, TraceAction, Unavailable, observe_operators, parse_bytes, report_operator,
};
#[allow(unused_imports, unreachable_pub, reason = "empty in a build without backends")]
pub use backends::crates::*;
pub use buffer::Buffer;
pub use bytemuck;
pub use choice::{BackendStatus, backends, current_accelerator, device_count, is_available, set_accelerator};
#[allow(deprecated)]
pub use current::{
    current_device_idx, current_device_index, current_stream, exchange_device_index, get_device_capability,
    get_device_properties, set_device_idx, set_device_index, set_stream, synchronize,
};
pub use device_arg::DeviceArg;
pub use event::Event;
pub use guard::{DeviceIndexGuard, StreamGuard};
pub use pinned::PinnedBuffer;
pub use stream::Stream;
pub use typed::typed;
pub use view::{Slice, SliceMut};
