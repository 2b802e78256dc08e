//! Handles as the types of `ocl-core`, which the crate `ocl` is built on and calls `ocl::core`.
#![allow(unsafe_code)] // references are counted by hand

use accelerator_core::DriverResult;
use cl3::command_queue::retain_command_queue;
use cl3::context::retain_context;
use cl3::memory::retain_mem_object;
use ocl_core::{ClDeviceIdPtr, CommandQueue, Context, DeviceId, Mem};

use crate::answer;
use crate::kernel_argument::KernelArgument;
use crate::opencl::OpenCl;
use crate::stream::OpenClStream;

impl OpenCl {
    /// As [`from_native`](Self::from_native).
    ///
    /// # Errors
    /// As there.
    pub fn from_ocl(context: &Context, device: &DeviceId, capacity: Option<u64>) -> DriverResult<Self> {
        // SAFETY: The context lives, since its type holds a reference.
        unsafe { Self::from_native(context.as_ptr(), device.as_ptr(), capacity) }
    }

    /// As [`native`](Self::native).
    ///
    /// # Errors
    /// What the driver says.
    pub fn ocl(&self) -> DriverResult<(Context, DeviceId)> {
        let (context, device) = self.native();
        // SAFETY: The context lives.
        answer::of("clRetainContext", unsafe { retain_context(context) })?;
        // SAFETY: The call just added this reference.
        let context = unsafe { Context::from_raw_create_ptr(context) };
        // SAFETY: It is a device.
        Ok((context, unsafe { DeviceId::from_raw(device) }))
    }

    /// As [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// As there.
    pub fn adopt_ocl(&self, queue: &CommandQueue) -> DriverResult<OpenClStream> {
        // SAFETY: The queue lives, since its type holds a reference.
        unsafe { self.adopt(queue.as_ptr()) }
    }
}

impl OpenClStream {
    /// As [`native`](Self::native).
    ///
    /// # Errors
    /// What the driver says.
    pub fn ocl(&self) -> DriverResult<CommandQueue> {
        let queue = self.native();
        // SAFETY: The queue lives.
        answer::of("clRetainCommandQueue", unsafe { retain_command_queue(queue) })?;
        // SAFETY: The call just added this reference.
        Ok(unsafe { CommandQueue::from_raw_create_ptr(queue) })
    }
}

impl KernelArgument<'_> {
    /// As [`native`](Self::native); `None` for a buffer without bytes.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// * While it is used, by calls of `ocl-core` that are safe otherwise, the buffer lives, its use by that queue's stream
    ///   is noted, and it is not borrowed in conflict.
    pub unsafe fn ocl(&self) -> DriverResult<Option<Mem>> {
        let memory = self.native();
        if memory.is_null() {
            return Ok(None);
        }
        // SAFETY: The memory object lives.
        answer::of("clRetainMemObject", unsafe { retain_mem_object(memory) })?;
        // SAFETY: The call just added this reference.
        Ok(Some(unsafe { Mem::from_raw_create_ptr(memory) }))
    }
}
