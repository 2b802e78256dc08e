//! OpenCL objects, reference-counted by the driver.
#![allow(unsafe_code)] // manual reference counting

use cl3::command_queue::release_command_queue;
use cl3::context::release_context;
use cl3::event::release_event;
use cl3::kernel::release_kernel;
use cl3::memory::release_mem_object;
use cl3::types::{cl_command_queue, cl_context, cl_event, cl_kernel, cl_mem};

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
                // SAFETY: The object is alive, and one of its references is ours.
                let _ = unsafe { $release(self.0) }; // if the release fails, the object leaks
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
