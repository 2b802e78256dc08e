//! Contexts and queues of other libraries, and ours for them.
#![allow(unsafe_code)] // references are counted by hand

use std::ptr;

use accelerator_core::DriverResult;
use cl3::command_queue::retain_command_queue;
use cl3::context::retain_context;
use cl3::types::{cl_command_queue, cl_context, cl_device_id};

use crate::answer;
use crate::handle::{Context, Queue};
use crate::opencl::OpenCl;
use crate::stream::OpenClStream;

impl OpenCl {
    /// A device of a context that another library made, to share its objects. It hands out at most `capacity` bytes;
    /// `None`: as many as the device has.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// * `context` is an OpenCL context that lives, and `device` one of its devices.
    pub unsafe fn from_native(
        context: cl_context,
        device: cl_device_id,
        capacity: Option<u64>,
    ) -> DriverResult<Self> {
        // SAFETY: The caller promises a context that lives.
        answer::of("clRetainContext", unsafe { retain_context(context) })?;
        // SAFETY: The call just added this reference.
        Self::new(unsafe { Context::owned(context) }, device, capacity)
    }

    /// The context and the device, which live as long as this.
    pub fn native(&self) -> (cl_context, cl_device_id) {
        (self.context.raw(), ptr::with_exposed_provenance_mut(self.device))
    }

    /// A queue that another library made, as a stream for
    /// [`external_stream`](accelerator_core::Accelerator::external_stream).
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// * `queue` is a command queue of this context and device that lives, in order and with profiling.
    pub unsafe fn adopt(&self, queue: cl_command_queue) -> DriverResult<OpenClStream> {
        // SAFETY: The caller promises a queue that lives.
        answer::of("clRetainCommandQueue", unsafe { retain_command_queue(queue) })?;
        // SAFETY: The call just added this reference.
        Ok(self.stream_of(unsafe { Queue::owned(queue) }))
    }
}
