//! Pinned host memory for the current accelerator.

use std::fmt;

use accelerator_core::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::backends::{AnyPinned, dispatch};
use crate::device_arg::DeviceArg;

/// Host memory that a device can access directly, so that copies run while the program continues:
/// [`Buffer::copy_from_pinned`](crate::Buffer::copy_from_pinned) and
/// [`Buffer::copy_to_pinned`](crate::Buffer::copy_to_pinned) return immediately. PyTorch: the storage of a tensor with
/// `pin_memory=True`.
///
/// Host and device never access the same bytes at the same time: reading waits for copies into the buffer, and writing
/// waits for all copies. The buffer may be dropped during a copy; its memory returns to the cache once the copy is
/// done.
#[must_use]
pub struct PinnedBuffer {
    pub(crate) any: AnyPinned,
}

impl PinnedBuffer {
    /// Allocates `len` bytes for copies from and to the device. Their contents are arbitrary. Opens the device.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`]; [`Error::Driver`]; errors of [`DeviceArg`] and of opening the device.
    pub fn allocate<'a>(len: u64, device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        Ok(Self { any: device.into().resolve()?.open()?.allocate_host(len)? })
    }

    /// Allocates like [`allocate`](Self::allocate), and copies `elements` into the buffer. PyTorch:
    /// `torch.Tensor.pin_memory`.
    ///
    /// # Errors
    /// The errors of [`allocate`](Self::allocate).
    pub fn from_slice<'a, T: NoUninit>(elements: &[T], device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut pinned = Self::allocate(bytes.len() as u64, device)?;
        pinned.bytes_mut()?.copy_from_slice(bytes);
        Ok(pinned)
    }

    /// Returns its bytes. Waits for copies into it, but not for later work on their streams.
    ///
    /// # Errors
    /// [`Error::Driver`] if the wait or a copy failed. The contents are then wrong.
    pub fn bytes(&self) -> Result<&[u8]> {
        dispatch!(AnyPinned, self.any, ref pinned => pinned.bytes())
    }

    /// Returns its bytes for writing. Waits for all copies from it and into it.
    ///
    /// # Errors
    /// [`Error::Driver`] if the wait or a copy failed. The failure of a copy is reported once.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        dispatch!(AnyPinned, self.any, ref mut pinned => pinned.bytes_mut())
    }

    /// Returns its bytes as elements. Waits like [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// [`Error::ElementSize`] unless the length is a multiple of the element's size; as for [`bytes`](Self::bytes).
    pub fn slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let not_whole = self.not_whole::<T>();
        bytemuck::try_cast_slice(self.bytes()?).map_err(|_| not_whole)
    }

    /// Returns its bytes as elements for writing. Waits like [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    /// [`Error::ElementSize`] unless the length is a multiple of the element's size; as for
    /// [`bytes_mut`](Self::bytes_mut).
    pub fn slice_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T]> {
        let not_whole = self.not_whole::<T>();
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|_| not_whole)
    }

    fn not_whole<T>(&self) -> Error {
        Error::ElementSize { size: self.len(), element: size_of::<T>() }
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer {{ {}, {} bytes }}", self.device(), self.len())
    }
}
