//! A device of any backend, and its allocators.

use std::collections::BTreeMap;

use accelerator_core::{
    AllocatorConfig, Device, DeviceProperties, EventFlags, History, HookId, HostStatistics, MemPoolId, MemPoolInfo,
    MemoryInfo, OutOfMemory, PoolStat, Recording, Result, Snapshot, Statistics, Stream, StreamId,
};

use crate::backends::{AnyDevice, AnyEvent, AnyPinned, dispatch};
use crate::stream::numbered;

// The callers of these methods are generic over the type of their device argument. The `match` is here to keep them
// small.
impl AnyDevice {
    /// Returns an address that identifies the device instance.
    pub(crate) fn address(self) -> usize {
        dispatch!(AnyDevice, self, device => std::ptr::from_ref(device).addr())
    }

    pub(crate) fn device(self) -> Device {
        dispatch!(AnyDevice, self, device => device.device())
    }

    pub(crate) fn properties(self) -> &'static DeviceProperties {
        dispatch!(AnyDevice, self, device => device.properties())
    }

    pub(crate) fn memory_info(self) -> Result<MemoryInfo> {
        dispatch!(AnyDevice, self, device => device.memory_info())
    }

    pub(crate) fn synchronize(self) -> Result<()> {
        dispatch!(AnyDevice, self, device => device.synchronize())
    }

    pub(crate) fn new_stream(self, priority: i32) -> Result<StreamId> {
        dispatch!(AnyDevice, self, device => device.stream(priority).map(Stream::id))
    }

    pub(crate) fn has_stream(self, id: StreamId) -> bool {
        dispatch!(AnyDevice, self, device => device.stream_by_id(id).is_some())
    }

    pub(crate) fn current_stream(self) -> StreamId {
        dispatch!(AnyDevice, self, device => device.current_stream().id())
    }

    /// Makes a stream the current one of this thread, and returns the previous one. The number must come from the
    /// device.
    pub(crate) fn exchange_stream(self, id: StreamId) -> StreamId {
        dispatch!(AnyDevice, self, device => {
            let before = device.set_current_stream(numbered(device, id));
            debug_assert!(before.is_ok(), "the stream is of this device");
            before.map_or(StreamId::DEFAULT, Stream::id)
        })
    }

    pub(crate) fn new_event(self, flags: EventFlags) -> AnyEvent {
        dispatch!(AnyDevice, self, device => device.event(flags).into())
    }

    pub(crate) fn allocate_host(self, len: u64) -> Result<AnyPinned> {
        dispatch!(AnyDevice, self, device => device.allocate_host(len).map(Into::into))
    }

    pub(crate) fn is_used(&self) -> bool {
        dispatch!(AnyDevice, *self, device => device.allocator().is_used())
    }

    pub(crate) fn statistics(self) -> Statistics {
        dispatch!(AnyDevice, self, device => device.allocator().statistics())
    }

    pub(crate) fn reset_peak_statistics(self) {
        dispatch!(AnyDevice, self, device => device.allocator().reset_peak_statistics());
    }

    pub(crate) fn reset_accumulated_statistics(self) {
        dispatch!(AnyDevice, self, device => device.allocator().reset_accumulated_statistics());
    }

    pub(crate) fn empty_cache(self) -> Result<()> {
        dispatch!(AnyDevice, self, device => device.allocator().empty_cache())
    }

    pub(crate) fn empty_pool_cache(self, pool: MemPoolId) -> Result<()> {
        dispatch!(AnyDevice, self, device => device.allocator().empty_pool_cache(pool))
    }

    pub(crate) fn pool_snapshot(self, pool: MemPoolId) -> Snapshot {
        dispatch!(AnyDevice, self, device => device.allocator().pool_snapshot(pool))
    }

    pub(crate) fn reserved_by_private_pools(self) -> BTreeMap<MemPoolId, PoolStat> {
        dispatch!(AnyDevice, self, device => device.allocator().reserved_by_private_pools())
    }

    pub(crate) fn mem_pools(self) -> BTreeMap<MemPoolId, MemPoolInfo> {
        dispatch!(AnyDevice, self, device => device.allocator().pools())
    }

    pub(crate) fn snapshot(self) -> Snapshot {
        dispatch!(AnyDevice, self, device => device.allocator().snapshot())
    }

    pub(crate) fn record_history(self, recording: Option<Recording>) {
        dispatch!(AnyDevice, self, device => device.allocator().record_history(recording));
    }

    pub(crate) fn history(self) -> History {
        dispatch!(AnyDevice, self, device => device.allocator().history())
    }

    pub(crate) fn memory_fraction(self) -> f64 {
        dispatch!(AnyDevice, self, device => device.allocator().memory_fraction())
    }

    pub(crate) fn set_memory_fraction(self, fraction: f64) -> Result<()> {
        dispatch!(AnyDevice, self, device => device.allocator().set_memory_fraction(fraction))
    }

    pub(crate) fn set_config(self, config: AllocatorConfig) {
        dispatch!(AnyDevice, self, device => device.allocator().set_config(config));
    }

    pub(crate) fn add_free_memory_callback(self, callback: Box<dyn Fn() -> bool + Send + Sync>) -> HookId {
        dispatch!(AnyDevice, self, device => device.allocator().add_free_memory_callback(callback))
    }

    pub(crate) fn add_out_of_memory_observer(self, observer: Box<dyn Fn(&OutOfMemory) + Send + Sync>) -> HookId {
        dispatch!(AnyDevice, self, device => device.allocator().add_out_of_memory_observer(observer))
    }

    pub(crate) fn remove_hook(self, id: HookId) -> bool {
        dispatch!(AnyDevice, self, device => device.allocator().remove_hook(id))
    }

    pub(crate) fn is_host_used(&self) -> bool {
        dispatch!(AnyDevice, *self, device => device.host_allocator().is_used())
    }

    pub(crate) fn host_statistics(self) -> HostStatistics {
        dispatch!(AnyDevice, self, device => device.host_allocator().statistics())
    }

    pub(crate) fn reset_peak_host_statistics(self) {
        dispatch!(AnyDevice, self, device => device.host_allocator().reset_peak_statistics());
    }

    pub(crate) fn reset_accumulated_host_statistics(self) {
        dispatch!(AnyDevice, self, device => device.host_allocator().reset_accumulated_statistics());
    }

    pub(crate) fn empty_host_cache(self) -> Result<()> {
        dispatch!(AnyDevice, self, device => device.host_allocator().empty_cache())
    }
}
