//! Handles as the types of `ocl-core`, on which the crate `ocl` is built (as `ocl::core`).
#![allow(unsafe_code)] // manual reference counting

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
    /// Like [`from_native`](Self::from_native).
    ///
    /// # Errors
    /// The errors of `from_native`.
    pub fn from_ocl(context: &Context, device: &DeviceId, capacity: Option<u64>) -> DriverResult<Self> {
        // SAFETY: The context is alive, since its type holds a reference.
        unsafe { Self::from_native(context.as_ptr(), device.as_ptr(), capacity) }
    }

    /// Like [`native`](Self::native).
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn ocl(&self) -> DriverResult<(Context, DeviceId)> {
        let (context, device) = self.native();
        // SAFETY: The context is alive.
        answer::of("clRetainContext", unsafe { retain_context(context) })?;
        // SAFETY: The call has just added this reference.
        let context = unsafe { Context::from_raw_create_ptr(context) };
        // SAFETY: This is a device.
        Ok((context, unsafe { DeviceId::from_raw(device) }))
    }

    /// Like [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// The errors of `adopt`.
    pub fn adopt_ocl(&self, queue: &CommandQueue) -> DriverResult<OpenClStream> {
        // SAFETY: The queue is alive, since its type holds a reference.
        unsafe { self.adopt(queue.as_ptr()) }
    }
}

impl OpenClStream {
    /// Like [`native`](Self::native).
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn ocl(&self) -> DriverResult<CommandQueue> {
        let queue = self.native();
        // SAFETY: The queue is alive.
        answer::of("clRetainCommandQueue", unsafe { retain_command_queue(queue) })?;
        // SAFETY: The call has just added this reference.
        Ok(unsafe { CommandQueue::from_raw_create_ptr(queue) })
    }
}

impl KernelArgument<'_> {
    /// Like [`native`](Self::native); `None` for an empty buffer.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// * While calls of `ocl-core`, which are otherwise safe, use the memory object, the buffer lives, its use by that
    ///   queue's stream is recorded, and it is not borrowed in conflict.
    pub unsafe fn ocl(&self) -> DriverResult<Option<Mem>> {
        let memory = self.native();
        if memory.is_null() {
            return Ok(None);
        }
        // SAFETY: The memory object is alive.
        answer::of("clRetainMemObject", unsafe { retain_mem_object(memory) })?;
        // SAFETY: The call has just added this reference.
        Ok(Some(unsafe { Mem::from_raw_create_ptr(memory) }))
    }
}
