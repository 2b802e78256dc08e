//! OpenCL objects, reference-counted by the driver.
#![allow(unsafe_code)] // manual reference counting

use accelerator_core::backend_kit::try_twice;
use cl3::command_queue::release_command_queue;
use cl3::context::release_context;
use cl3::event::release_event;
use cl3::kernel::release_kernel;
use cl3::memory::release_mem_object;
use cl3::types::{cl_command_queue, cl_context, cl_event, cl_kernel, cl_mem};

use crate::answer;

macro_rules! handles {
    ($($Name:ident: $raw:ty, $release:path;)*) => {$(
        /// One reference to an object, which is released on drop.
        #[derive(Debug)]
        pub(crate) struct $Name($raw);

        // SAFETY: OpenCL objects may be used from any thread. Only the arguments of kernels may not, and nothing here
        // sets them.
        unsafe impl Send for $Name {}
        // SAFETY: As for `Send`.
        unsafe impl Sync for $Name {}

        impl $Name {
            /// Takes ownership of a reference.
            ///
            /// # Safety
            /// * `raw` is an object of this type, and the caller owns the reference.
            pub(crate) unsafe fn owned(raw: $raw) -> Self {
                Self(raw)
            }

            pub(crate) fn raw(&self) -> $raw {
                self.0
            }
        }

        impl Drop for $Name {
            fn drop(&mut self) {
                // SAFETY: The object is alive, and one of its references is ours: a refused call releases nothing.
                try_twice(|| answer::of(stringify!($release), unsafe { $release(self.0) }));
            }
        }
    )*};
}

handles! {
    Context: cl_context, release_context;
    Queue: cl_command_queue, release_command_queue;
    Event: cl_event, release_event;
    Memory: cl_mem, release_mem_object;
    Kernel: cl_kernel, release_kernel;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use cl3::error_codes::CL_OUT_OF_RESOURCES;
    use cl3::types::cl_int;

    use super::*;

    handles! { Refused: cl_mem, refuse_once; }

    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    /// # Safety
    /// * None: it only counts.
    unsafe fn refuse_once(_: cl_mem) -> Result<(), cl_int> {
        CALLS.set(CALLS.get() + 1);
        if CALLS.get() == 1 { Err(CL_OUT_OF_RESOURCES) } else { Ok(()) }
    }

    #[test]
    fn a_release_that_the_driver_refuses_is_repeated_once() {
        for calls in [2, 3] {
            // SAFETY: The release only counts.
            let object = unsafe { Refused::owned(std::ptr::null_mut()) };
            assert!(object.raw().is_null());
            drop(object);
            assert_eq!(CALLS.get(), calls);
        }
    }
}
