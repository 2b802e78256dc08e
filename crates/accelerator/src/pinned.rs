//! Pinned host memory for whichever backend it is.

use std::fmt;

use accelerator_core::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::backends::{AnyPinned, dispatch};
use crate::device_arg::DeviceArg;

/// Host memory that a device copies from and to by itself, so that copies run beside the program:
/// [`Buffer::copy_from_pinned`](crate::Buffer::copy_from_pinned) and
/// [`Buffer::copy_to_pinned`](crate::Buffer::copy_to_pinned) return at once. PyTorch: the storage of a tensor with
/// `pin_memory=True`.
///
/// Host and device never have the same bytes at once: reading waits for copies into it, writing for all copies. Dropped,
/// also with copies under way, its memory goes back to the cache when they are over.
#[must_use]
pub struct PinnedBuffer {
    pub(crate) any: AnyPinned,
}

impl PinnedBuffer {
    /// Allocates `len` bytes for copies from and to the device; their contents are whatever was there. Opens the device.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`]; as [`DeviceArg`] says; what opening the device can fail with; [`Error::Driver`].
    pub fn allocate<'a>(len: u64, device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        Ok(Self { any: device.into().resolve()?.open()?.allocate_host(len)? })
    }

    /// Allocates as [`allocate`](Self::allocate) and copies `elements` there. PyTorch: `torch.Tensor.pin_memory`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn from_slice<'a, T: NoUninit>(elements: &[T], device: impl Into<DeviceArg<'a>>) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut pinned = Self::allocate(bytes.len() as u64, device)?;
        pinned.bytes_mut()?.copy_from_slice(bytes);
        Ok(pinned)
    }

    /// Its bytes, after waiting for the copies into it that are under way; for no later work of their streams.
    ///
    /// # Errors
    /// [`Error::Driver`] where waiting failed, or a copy: then the bytes are not what they should be.
    pub fn bytes(&self) -> Result<&[u8]> {
        dispatch!(AnyPinned, self.any, ref pinned => pinned.bytes())
    }

    /// Its bytes to write, after waiting for every copy that is under way.
    ///
    /// # Errors
    /// [`Error::Driver`] where waiting failed, or a copy, which is told once.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        dispatch!(AnyPinned, self.any, ref mut pinned => pinned.bytes_mut())
    }

    /// Its bytes as elements; waits as [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// [`Error::ElementSize`] where the length is no whole number of elements; as [`bytes`](Self::bytes).
    pub fn slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let not_whole = self.not_whole::<T>();
        bytemuck::try_cast_slice(self.bytes()?).map_err(|_| not_whole)
    }

    /// Its bytes as elements to write; waits as [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    /// [`Error::ElementSize`] where the length is no whole number of elements; as [`bytes_mut`](Self::bytes_mut).
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
