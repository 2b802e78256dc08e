//! Methods that device memory and pinned host memory have in common.

use std::any::Any;

use accelerator_core::{Backend, Device, Error, Result};

use crate::backends::{AnyBuffer, AnyPinned, dispatch};
use crate::buffer::Buffer;
use crate::pinned::PinnedBuffer;
use crate::stream::Stream;
use crate::typed::alike;

macro_rules! memory {
    ($Memory:ident over $Any:ident, $what:literal) => {
        impl $Memory {
            /// Returns its length in bytes, as requested.
            pub fn len(&self) -> u64 {
                dispatch!($Any, self.any, ref memory => memory.len())
            }

            /// Returns whether its length is 0.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the size of its block in bytes, which is `len` rounded up. The statistics count this size:
            /// device memory as allocated, pinned host memory as active.
            pub fn block_size(&self) -> u64 {
                dispatch!($Any, self.any, ref memory => memory.block_size())
            }

            /// Returns its device. For pinned host memory, this is the device that it is pinned for.
            pub fn device(&self) -> Device {
                dispatch!($Any, self.any, ref memory => memory.device())
            }

            /// Records that `stream` uses it, so that its memory is not reused before that work is done. The methods
            /// here do this automatically; call it for work that another library submits. PyTorch:
            /// `torch.Tensor.record_stream`.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] if the stream belongs to another device.
            pub fn record_stream(&self, stream: &Stream) -> Result<()> {
                dispatch!($Any, self.any, ref memory => memory.record_use(stream.typed()?))
            }

            /// Returns the core's type, for kernels and other libraries that read it.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] if the memory belongs to another backend.
            pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::$Memory<B>> {
                self.downcast().ok_or_else(|| self.mismatch(alike::<B>(self.device())))
            }

            /// Returns the core's type, for kernels and other libraries that write to it.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] if the memory belongs to another backend.
            pub fn typed_mut<B: Backend>(&mut self) -> Result<&mut accelerator_core::$Memory<B>> {
                let mismatch = self.mismatch(alike::<B>(self.device()));
                self.downcast_mut().ok_or(mismatch)
            }

            pub(crate) fn downcast<B: Backend>(&self) -> Option<&accelerator_core::$Memory<B>> {
                dispatch!($Any, self.any, ref memory => memory as &dyn Any).downcast_ref()
            }

            pub(crate) fn downcast_mut<B: Backend>(&mut self) -> Option<&mut accelerator_core::$Memory<B>> {
                dispatch!($Any, self.any, ref mut memory => memory as &mut dyn Any).downcast_mut()
            }

            /// Returns the error for a call that needs memory of another device.
            pub(crate) fn mismatch(&self, expected: Device) -> Error {
                Error::DeviceMismatch { what: $what, expected, found: self.device() }
            }
        }
    };
}

memory!(Buffer over AnyBuffer, "the buffer");
memory!(PinnedBuffer over AnyPinned, "the pinned buffer");
