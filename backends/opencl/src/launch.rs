//! Kernels, launched or captured.
#![allow(unsafe_code)] // calls into the driver

use std::ptr;
use std::sync::Arc;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use cl3::command_queue::enqueue_nd_range_kernel;
use cl3::kernel::clone_kernel;
use cl3::types::{cl_command_queue, cl_event, cl_int, cl_kernel, cl_uint};

use crate::answer;
use crate::handle::{Kernel, Memory};
use crate::kernel_argument::KernelArgument;
use crate::stream::OpenClStream;
use crate::work::Work;

/// A kernel that nobody gives other arguments, and the memory objects among its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    kernel: Kernel,
    global: Vec<usize>,
    local: Option<Vec<usize>>,
    _arguments: Vec<Option<Arc<Memory>>>,
}

impl Launch {
    pub(crate) fn kernel(&self) -> cl_kernel {
        self.kernel.raw()
    }

    pub(crate) fn global(&self) -> &[usize] {
        &self.global
    }

    pub(crate) fn local(&self) -> Option<&[usize]> {
        self.local.as_deref()
    }
}

impl OpenClStream {
    /// Launches a kernel with the arguments that it has now, after the stream's earlier work: so many work items in
    /// each dimension, in groups of so many. With `None`, the driver chooses the groups. OpenCL:
    /// `clEnqueueNDRangeKernel`.
    ///
    /// While the stream captures, the kernel is cloned (`clCloneKernel`, OpenCL 2.1), so it may get other arguments
    /// afterwards. The graph keeps the memory objects of `arguments`, which must be those that the kernel has.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) for lists of different lengths; errors of the driver.
    ///
    /// # Safety
    /// * The kernel is alive and of this context, all of its arguments are set, and no thread sets them meanwhile.
    /// * It stays within its memory objects, which stay valid until the stream has executed it. Nothing else uses what
    ///   it writes before then.
    pub unsafe fn launch(
        &self,
        kernel: cl_kernel,
        global: &[usize],
        local: Option<&[usize]>,
        arguments: &[KernelArgument<'_>],
    ) -> DriverResult<()> {
        const CALL: &str = "clEnqueueNDRangeKernel";
        if local.is_some_and(|local| local.len() != global.len()) {
            let why = "the work groups have another number of dimensions than the work items";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, CALL, why));
        }
        if !self.captures.is_capturing(self.number) {
            // SAFETY: The caller promises a valid kernel, and the lists are as long.
            return self.submit(CALL, |queue| unsafe { enqueue(queue, kernel, global, local) }).map(drop);
        }
        let cloned = answer::of("clCloneKernel", clone_kernel(kernel))?;
        let launch = Launch {
            // SAFETY: The call has just returned this reference.
            kernel: unsafe { Kernel::owned(cloned) },
            global: global.to_vec(),
            local: local.map(<[usize]>::to_vec),
            _arguments: arguments.iter().map(KernelArgument::memory).collect(),
        };
        // SAFETY: The caller promises the same.
        unsafe { self.run(Work::Launch(Arc::new(launch))) }
    }
}

/// Enqueues a kernel.
///
/// # Safety
/// * The queue and the kernel are alive, its arguments are valid, and both lists are as long.
pub(crate) unsafe fn enqueue(
    queue: cl_command_queue,
    kernel: cl_kernel,
    global: &[usize],
    local: Option<&[usize]>,
) -> Result<cl_event, cl_int> {
    let (dimensions, none) = (global.len() as cl_uint, ptr::null());
    let (global, local) = (global.as_ptr(), local.map_or(ptr::null(), <[usize]>::as_ptr));
    // SAFETY: The caller promises this.
    unsafe { enqueue_nd_range_kernel(queue, kernel, dimensions, ptr::null(), global, local, 0, none) }
}
