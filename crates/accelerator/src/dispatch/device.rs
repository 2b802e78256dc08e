use std::any::Any;

use accelerator_core::{
    Accelerator, Backend, Buffer, Device, DeviceProperties, Event, EventFlags, MemoryInfo, PinnedBuffer,
    Result, Stream, StreamId,
};
use enum_dispatch::enum_dispatch;

use crate::backends::{AnyBuffer, AnyEvent, AnyPinned};

/// A device and its streams, which are named by number.
#[enum_dispatch]
pub(crate) trait DeviceDispatch {
    /// Tells device instances apart.
    fn address(&self) -> usize;
    /// The `Accelerator<B>`.
    fn as_any(&self) -> &'static (dyn Any + Send + Sync);
    fn device(&self) -> Device;
    fn properties(&self) -> &'static DeviceProperties;
    fn memory_info(&self) -> Result<MemoryInfo>;
    fn synchronize(&self) -> Result<()>;
    fn new_stream(&self, priority: i32) -> Result<StreamId>;
    fn stream_priority(&self, stream: StreamId) -> i32;
    fn query_stream(&self, stream: StreamId) -> Result<bool>;
    fn synchronize_stream(&self, stream: StreamId) -> Result<()>;
    fn new_event(&self, flags: EventFlags) -> AnyEvent;
    fn allocate(&self, len: u64, stream: StreamId) -> Result<AnyBuffer>;
    fn allocate_host(&self, len: u64) -> Result<AnyPinned>;
}

impl<B: Backend> DeviceDispatch for &'static Accelerator<B>
where
    Event<B>: Into<AnyEvent>,
    Buffer<B>: Into<AnyBuffer>,
    PinnedBuffer<B>: Into<AnyPinned>,
{
    fn address(&self) -> usize {
        std::ptr::from_ref::<Accelerator<B>>(self).addr()
    }

    fn as_any(&self) -> &'static (dyn Any + Send + Sync) {
        *self
    }

    fn device(&self) -> Device {
        Accelerator::device(self)
    }

    fn properties(&self) -> &'static DeviceProperties {
        Accelerator::properties(self)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        Accelerator::memory_info(self)
    }

    fn synchronize(&self) -> Result<()> {
        Accelerator::synchronize(self)
    }

    fn new_stream(&self, priority: i32) -> Result<StreamId> {
        self.stream(priority).map(Stream::id)
    }

    fn stream_priority(&self, stream: StreamId) -> i32 {
        numbered(self, stream).priority()
    }

    fn query_stream(&self, stream: StreamId) -> Result<bool> {
        numbered(self, stream).is_idle()
    }

    fn synchronize_stream(&self, stream: StreamId) -> Result<()> {
        numbered(self, stream).synchronize()
    }

    fn new_event(&self, flags: EventFlags) -> AnyEvent {
        self.event(flags).into()
    }

    #[inline]
    fn allocate(&self, len: u64, stream: StreamId) -> Result<AnyBuffer> {
        Accelerator::allocate(self, len, numbered(self, stream)).map(Into::into)
    }

    fn allocate_host(&self, len: u64) -> Result<AnyPinned> {
        Accelerator::allocate_host(self, len).map(Into::into)
    }
}

/// The stream with this number. Numbers come from the device itself, so that it is there.
pub(crate) fn numbered<B: Backend>(accelerator: &Accelerator<B>, stream: StreamId) -> Stream<B> {
    accelerator.stream_by_id(stream).unwrap_or(accelerator.default_stream())
}
