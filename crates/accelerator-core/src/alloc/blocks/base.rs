//! The driver's pointer to a segment, with its type erased, so that code that stores segments is compiled once for all
//! backends.
#![allow(unsafe_code)] // restores the type of an erased pointer

use std::mem::MaybeUninit;

use crate::types::DevicePtr;

/// The maximum size of a driver's pointer, in eight-byte words.
const WORDS: usize = 3;

/// The start of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    address: u64,
    ptr: MaybeUninit<[u64; WORDS]>,
}

impl Base {
    #[inline]
    pub(crate) fn new<P: DevicePtr>(ptr: P) -> Self {
        const {
            assert!(size_of::<P>() <= WORDS * 8 && align_of::<P>() <= 8, "a DevicePtr has at most 24 bytes");
        }
        let mut erased = MaybeUninit::<[u64; WORDS]>::uninit();
        // SAFETY: The assertion above ensures that the words have the size and alignment for a `P`.
        unsafe { erased.as_mut_ptr().cast::<P>().write(ptr) };
        Self { address: ptr.trace_address(), ptr: erased }
    }

    /// Returns the driver's pointer.
    ///
    /// # Safety
    /// The base was made from a `P`.
    #[inline(always)]
    pub(crate) unsafe fn ptr<P: DevicePtr>(&self) -> P {
        // SAFETY: The caller guarantees that `new` wrote a `P` there, and `P` is `Copy`.
        unsafe { self.ptr.as_ptr().cast::<P>().read() }
    }

    /// Returns the [`DevicePtr::trace_address`] of the pointer.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Handle(u8, usize, u32);

    impl DevicePtr for Handle {
        fn offset(self, bytes: u64) -> Self {
            Self(self.0, self.1 + bytes as usize, self.2)
        }

        fn trace_address(self) -> u64 {
            self.1 as u64
        }
    }

    impl Base {
        /// Returns a base for tests that use no memory.
        pub(crate) fn unused() -> Self {
            Self::new(Handle(0, 0, 0))
        }
    }

    #[test]
    fn a_pointer_comes_back_as_it_was() {
        let handle = Handle(7, 0x1234_5678_9abc, u32::MAX);
        let base = Base::new(handle);
        // SAFETY: The base was made from a `Handle`.
        assert_eq!(unsafe { base.ptr::<Handle>() }, handle);
        assert_eq!(base.address(), 0x1234_5678_9abc);
    }
}
