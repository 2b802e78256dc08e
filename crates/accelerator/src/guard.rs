//! Guards that restore on drop what this thread had selected, also when it panics.

use std::marker::PhantomData;

use accelerator_core::Result;

use crate::backends::BuiltIn;
use crate::current::{current_stream, set_stream};
use crate::device_arg::{DeviceArg, Target};
use crate::selection;
use crate::stream::Stream;

/// Bound to the thread whose selection it restores.
type OnThisThread = PhantomData<*const ()>;

/// Makes a device the current one of this thread until it is dropped. PyTorch: `torch.accelerator.device_index`.
///
/// ```
/// use accelerator::{DeviceIndexGuard, current_device_index};
/// # fn main() -> accelerator::Result<()> {
/// {
///     let _guard = DeviceIndexGuard::new(Some(0))?;
///     assert_eq!(current_device_index()?, 0);
/// } // the device before is current again
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped at once, it restores at once"]
pub struct DeviceIndexGuard {
    previous: Option<(BuiltIn, u32)>,
    thread: OnThisThread,
}

impl DeviceIndexGuard {
    /// Switches to the device with this number; `None`: switches nothing, and restores nothing.
    ///
    /// # Errors
    /// [`Error::InvalidDevice`](crate::Error::InvalidDevice), [`Error::NoAccelerator`](crate::Error::NoAccelerator).
    pub fn new(index: Option<u32>) -> Result<Self> {
        let target = index.map(|index| DeviceArg::from(index).resolve()).transpose()?;
        let previous =
            target.map(|Target { backend, index }| (backend, selection::exchange_index(backend, index)));
        Ok(Self { previous, thread: PhantomData })
    }
}

impl Drop for DeviceIndexGuard {
    fn drop(&mut self) {
        if let Some((backend, index)) = self.previous {
            selection::exchange_index(backend, index);
        }
    }
}

/// Makes a stream, and its device, current on this thread until it is dropped. PyTorch: `with stream:`.
#[derive(Debug)]
#[must_use = "dropped at once, it restores at once"]
pub struct StreamGuard {
    /// What was current on the stream's device.
    stream: Stream,
    index: u32,
    thread: OnThisThread,
}

impl StreamGuard {
    /// Switches to the stream.
    ///
    /// # Errors
    /// As [`set_stream`].
    pub fn new(stream: &Stream) -> Result<Self> {
        let previous = Self {
            stream: current_stream(stream.device())?,
            index: selection::index(stream.backend()),
            thread: PhantomData,
        };
        set_stream(stream)?;
        Ok(previous)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        selection::set_stream(self.stream);
        selection::exchange_index(self.stream.backend(), self.index);
    }
}
