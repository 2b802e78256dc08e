//! Buffers viewed as elements of a type.

use std::marker::PhantomData;

use accelerator_core::{Result, element_count};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::buffer::Buffer;

/// A read-only view of a buffer as elements.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a, T> {
    buffer: &'a Buffer,
    len: usize,
    element: PhantomData<T>,
}

/// A writable view of a buffer as elements.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    buffer: &'a mut Buffer,
    len: usize,
    element: PhantomData<T>,
}

impl Buffer {
    /// Returns a read-only view of its elements.
    ///
    /// # Errors
    /// [`Error::ElementSize`](crate::Error::ElementSize) unless the length is a multiple of the element's size.
    pub fn slice<T: AnyBitPattern>(&self) -> Result<Slice<'_, T>> {
        Ok(Slice { len: element_count::<T>(self.len())?, buffer: self, element: PhantomData })
    }

    /// Returns a writable view of its elements.
    ///
    /// # Errors
    /// [`Error::ElementSize`](crate::Error::ElementSize) unless the length is a multiple of the element's size.
    pub fn slice_mut<T: AnyBitPattern + NoUninit>(&mut self) -> Result<SliceMut<'_, T>> {
        Ok(SliceMut { len: element_count::<T>(self.len())?, buffer: self, element: PhantomData })
    }

    /// Copies its elements to the host. PyTorch: `torch.Tensor.tolist`.
    ///
    /// # Errors
    /// [`Error::ElementSize`](crate::Error::ElementSize) unless the length is a multiple of the element's size; as for
    /// [`read`](Self::read).
    pub fn to_vec<T: AnyBitPattern + NoUninit>(&self) -> Result<Vec<T>> {
        self.slice()?.to_vec()
    }
}

macro_rules! reading {
    ($view:ident) => {
        impl<T> $view<'_, T> {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }
        }

        impl<T: AnyBitPattern + NoUninit> $view<'_, T> {
            /// Copies the elements to the host.
            ///
            /// # Errors
            /// The errors of [`Buffer::read`].
            pub fn to_vec(&self) -> Result<Vec<T>> {
                let mut elements = vec![T::zeroed(); self.len];
                self.read(0, &mut elements)?;
                Ok(elements)
            }

            /// Copies the elements from index `start` into `elements`.
            ///
            /// # Errors
            /// The errors of [`Buffer::read`].
            pub fn read(&self, start: usize, elements: &mut [T]) -> Result<()> {
                self.buffer.read(bytes_to::<T>(start), bytemuck::cast_slice_mut(elements))
            }
        }
    };
}

reading!(Slice);
reading!(SliceMut);

impl<T: NoUninit> SliceMut<'_, T> {
    /// Copies `elements` to the positions from index `start`, and returns once they have arrived.
    ///
    /// # Errors
    /// The errors of [`Buffer::write`].
    pub fn write(&mut self, start: usize, elements: &[T]) -> Result<()> {
        self.buffer.write(bytes_to::<T>(start), bytemuck::cast_slice(elements))
    }
}

/// Returns the offset of an element in bytes. On overflow, returns an offset past the end of every buffer.
fn bytes_to<T>(start: usize) -> u64 {
    (start as u64).saturating_mul(size_of::<T>() as u64)
}
