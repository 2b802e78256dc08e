use std::any::Any;

use accelerator_core::{Backend, Device, PinnedBuffer, Result};
use enum_dispatch::enum_dispatch;

use crate::stream::Stream;

/// Pinned host memory.
#[enum_dispatch]
pub(crate) trait PinnedDispatch {
    /// The `PinnedBuffer<B>`.
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn device(&self) -> Device;
    fn len(&self) -> u64;
    fn block_size(&self) -> u64;
    fn record_use(&self, stream: &Stream) -> Result<()>;
    fn bytes(&self) -> Result<&[u8]>;
    fn bytes_mut(&mut self) -> Result<&mut [u8]>;
}

impl<B: Backend> PinnedDispatch for PinnedBuffer<B> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn device(&self) -> Device {
        self.device()
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn block_size(&self) -> u64 {
        self.block_size()
    }

    fn record_use(&self, stream: &Stream) -> Result<()> {
        self.record_use(stream.typed()?)
    }

    fn bytes(&self) -> Result<&[u8]> {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.bytes_mut()
    }
}
