//! What device memory and pinned host memory have in common.

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
            /// Its length in bytes, as requested.
            pub fn len(&self) -> u64 {
                dispatch!($Any, self.any, ref memory => memory.len())
            }

            /// Whether its length is 0.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// The size of its block in bytes: `len` rounded up. The statistics count it: device memory as allocated,
            /// pinned host memory as active.
            pub fn block_size(&self) -> u64 {
                dispatch!($Any, self.any, ref memory => memory.block_size())
            }

            /// Its device. For pinned host memory, the device that it is pinned for.
            pub fn device(&self) -> Device {
                dispatch!($Any, self.any, ref memory => memory.device())
            }

            /// Records that `stream` uses it, so that its memory is not reused before that work is done. All methods
            /// here do so themselves; this is for work that another library submits. PyTorch:
            /// `torch.Tensor.record_stream`.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] for a stream of another device.
            pub fn record_stream(&self, stream: &Stream) -> Result<()> {
                dispatch!($Any, self.any, ref memory => memory.record_use(stream.typed()?))
            }

            /// The core's type, for kernels and other libraries that read it.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] for memory of another backend.
            pub fn typed<B: Backend>(&self) -> Result<&accelerator_core::$Memory<B>> {
                self.downcast().ok_or_else(|| self.mismatch(alike::<B>(self.device())))
            }

            /// The core's type, for kernels and other libraries that write it.
            ///
            /// # Errors
            /// [`Error::DeviceMismatch`] for memory of another backend.
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

            /// The error where memory of another device is needed.
            pub(crate) fn mismatch(&self, expected: Device) -> Error {
                Error::DeviceMismatch { what: $what, expected, found: self.device() }
            }
        }
    };
}

memory!(Buffer over AnyBuffer, "the buffer");
memory!(PinnedBuffer over AnyPinned, "the pinned buffer");
