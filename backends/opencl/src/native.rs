//! Contexts and queues shared with other libraries, in both directions.
#![allow(unsafe_code)] // manual reference counting

use std::ffi::c_void;
use std::ptr;

use accelerator_core::DriverResult;
use cl3::command_queue::{
    CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES,
    get_command_queue_info, retain_command_queue,
};
use cl3::context::{CL_CONTEXT_DEVICES, get_context_info, retain_context};
use cl3::error_codes::{CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_QUEUE_PROPERTIES};
use cl3::info_type::InfoType;
use cl3::types::{cl_command_queue, cl_context, cl_device_id};

use crate::answer;
use crate::handle::{Context, Queue};
use crate::opencl::OpenCl;
use crate::stream::OpenClStream;

impl OpenCl {
    /// Opens a device in a context that another library made, to share its objects. The device hands out at most
    /// `capacity` bytes; with `None`, as many as it has.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for a device that is not in the context;
    /// errors of the driver.
    ///
    /// # Safety
    /// * `context` is a live OpenCL context.
    pub unsafe fn from_native(context: cl_context, device: cl_device_id, capacity: Option<u64>) -> DriverResult<Self> {
        let devices = answer::of("clGetContextInfo", get_context_info(context, CL_CONTEXT_DEVICES))?;
        if !Vec::<isize>::from(devices).contains(&(device.addr() as isize)) {
            return Err(answer::error("clGetContextInfo", CL_INVALID_DEVICE));
        }
        // SAFETY: The caller promises a live context.
        answer::of("clRetainContext", unsafe { retain_context(context) })?;
        // SAFETY: The call has just added this reference.
        Self::new(unsafe { Context::owned(context) }, device, capacity)
    }

    /// Returns the context and the device. They are valid as long as this value lives.
    pub fn native(&self) -> (cl_context, cl_device_id) {
        (self.context.raw(), ptr::with_exposed_provenance_mut(self.device))
    }

    /// Wraps a queue that another library made as a stream, for
    /// [`external_stream`](accelerator_core::Accelerator::external_stream). Elapsed times need a queue with profiling.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for a queue of another context or
    /// device, and for one that is not in order; errors of the driver.
    ///
    /// # Safety
    /// * `queue` is a live command queue.
    pub unsafe fn adopt(&self, queue: cl_command_queue) -> DriverResult<OpenClStream> {
        let (context, device) = self.native();
        let info = |what| answer::of("clGetCommandQueueInfo", get_command_queue_info(queue, what));
        let is = |found: InfoType, ours: *mut c_void| isize::from(found) as usize == ours.addr();
        if !is(info(CL_QUEUE_CONTEXT)?, context) || !is(info(CL_QUEUE_DEVICE)?, device) {
            return Err(answer::error("clRetainCommandQueue", CL_INVALID_CONTEXT));
        }
        if u64::from(info(CL_QUEUE_PROPERTIES)?) & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
            return Err(answer::error("clRetainCommandQueue", CL_INVALID_QUEUE_PROPERTIES));
        }
        // SAFETY: The caller promises a live queue.
        answer::of("clRetainCommandQueue", unsafe { retain_command_queue(queue) })?;
        // SAFETY: The call has just added this reference.
        Ok(self.stream_of(unsafe { Queue::owned(queue) }, true))
    }
}
