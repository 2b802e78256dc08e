//! Buffers as arguments of kernels.
#![allow(unsafe_code)] // calls into the driver

use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_core::{Buffer, DriverResult, Error, Result, Stream};
use cl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, create_sub_buffer};
use cl3::types::{cl_buffer_region, cl_mem};

use crate::answer;
use crate::handle::Memory;
use crate::memory::OpenClPtr;
use crate::opencl::OpenCl;
use crate::stream::lock;

/// So many sub-buffers of one buffer object are kept.
const MOST: usize = 1024;

/// A buffer as the argument of a kernel: a memory object with the buffer's bytes and no others.
///
/// To be kept until the kernel is enqueued; the driver keeps what enqueued work uses.
#[derive(Clone, Debug)]
pub struct KernelArgument<'a> {
    part: Option<Arc<Memory>>,
    buffer: PhantomData<&'a Buffer<OpenCl>>,
}

impl<'a> KernelArgument<'a> {
    /// The buffer, for a kernel on this stream, whose use of it is noted. OpenCL: `clCreateSubBuffer`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::Driver`], for instance
    /// `CL_MISALIGNED_SUB_BUFFER_OFFSET` on a device that aligns to more than the 512 bytes of a block.
    pub fn new(buffer: &'a Buffer<OpenCl>, stream: Stream<OpenCl>) -> Result<Self> {
        buffer.record_use(stream)?;
        let Some(ptr) = buffer.ptr() else { return Ok(Self { part: None, buffer: PhantomData }) };
        let argument = stream.backend().kernel_argument(ptr, buffer.len() as usize);
        argument.map_err(|source| Error::Driver { device: buffer.device(), source })
    }

    /// The memory object, for `clSetKernelArg`; null for a buffer without bytes, which kernels see as a null pointer.
    pub fn native(&self) -> cl_mem {
        self.part.as_ref().map_or(std::ptr::null_mut(), |part| part.raw())
    }
}

impl OpenCl {
    /// So many bytes of a live allocation as the argument of a kernel, for memory whose use is noted elsewhere.
    ///
    /// # Errors
    /// As [`KernelArgument::new`].
    pub fn kernel_argument(&self, ptr: OpenClPtr, len: usize) -> DriverResult<KernelArgument<'static>> {
        Ok(KernelArgument { part: Some(self.part(ptr, len)?), buffer: PhantomData })
    }

    /// The sub-buffer over a block that is live. Made outside the lock: of two threads that make the same, one is kept.
    fn part(&self, ptr: OpenClPtr, len: usize) -> DriverResult<Arc<Memory>> {
        let (buffer, offset) = ptr.native();
        let key = (offset, len);
        if let Some(part) = lock(&self.segments).around(ptr).and_then(|segment| segment.parts.get(&key)) {
            return Ok(Arc::clone(part));
        }
        let region = cl_buffer_region { origin: offset, size: len };
        let region = (&raw const region).cast();
        // SAFETY: The buffer object lives, since a block of it does; the access is the buffer object's own.
        let part = unsafe { create_sub_buffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, region) };
        // SAFETY: The call just gave this reference.
        let part = Arc::new(unsafe { Memory::owned(answer::of("clCreateSubBuffer", part)?) });
        if let Some(segment) = lock(&self.segments).around(ptr) {
            if segment.parts.len() == MOST {
                segment.parts.clear(); // whoever uses one has it
            }
            segment.parts.insert(key, Arc::clone(&part));
        }
        Ok(part)
    }
}
