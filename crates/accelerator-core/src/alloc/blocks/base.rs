//! The driver's pointer to a segment without its type, so that what keeps segments is compiled once for all backends.
#![allow(unsafe_code)] // a pointer's type is given back to it

use std::mem::MaybeUninit;

use crate::types::DevicePtr;

/// Eight-byte words that a driver's pointer may have.
const WORDS: usize = 3;

/// Where a segment starts.
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
        // SAFETY: The words have room for a `P`, and its alignment, as the assertion above says.
        unsafe { erased.as_mut_ptr().cast::<P>().write(ptr) };
        Self { address: ptr.trace_address(), ptr: erased }
    }

    /// The driver's pointer.
    ///
    /// # Safety
    /// It was made of a `P`.
    #[inline(always)]
    pub(crate) unsafe fn ptr<P: DevicePtr>(&self) -> P {
        // SAFETY: The caller says that `new` wrote a `P` there, which is `Copy`.
        unsafe { self.ptr.as_ptr().cast::<P>().read() }
    }

    /// [`DevicePtr::trace_address`] of the pointer.
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

    #[test]
    fn a_pointer_comes_back_as_it_was() {
        let handle = Handle(7, 0x1234_5678_9abc, u32::MAX);
        let base = Base::new(handle);
        // SAFETY: It was made of a `Handle`.
        assert_eq!(unsafe { base.ptr::<Handle>() }, handle);
        assert_eq!(base.address(), 0x1234_5678_9abc);
    }
}
