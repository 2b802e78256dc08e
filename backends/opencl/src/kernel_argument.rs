//! Buffers as kernel arguments.
#![allow(unsafe_code)] // calls into the driver

use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Buffer, BufferUse, DevicePtr, DriverError, DriverErrorKind, DriverResult, Error, Result, Stream,
};
use cl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, create_sub_buffer};
use cl3::types::{cl_buffer_region, cl_mem};

use crate::answer;
use crate::handle::Memory;
use crate::memory::OpenClPtr;
use crate::opencl::OpenCl;

/// The maximum number of cached sub-buffers per buffer object.
const MOST: usize = 1024;

/// A buffer as a kernel argument: a memory object that contains exactly the buffer's bytes.
///
/// Keep it until the kernel is enqueued. The driver keeps the objects that enqueued work uses.
#[derive(Clone, Debug)]
pub struct KernelArgument<'a> {
    part: Option<Arc<Memory>>,
    /// Keeps the memory from being paused.
    _used: Option<Arc<BufferUse>>,
    buffer: PhantomData<&'a Buffer<OpenCl>>,
}

impl<'a> KernelArgument<'a> {
    /// Makes an argument of the buffer for a kernel on this stream, and records the stream's use. OpenCL:
    /// `clCreateSubBuffer`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another device; [`Error::Driver`], for instance with
    /// `CL_MISALIGNED_SUB_BUFFER_OFFSET` on a device that requires more than the 512-byte alignment of blocks.
    pub fn new(buffer: &'a Buffer<OpenCl>, stream: Stream<OpenCl>) -> Result<Self> {
        let used = Some(Arc::new(buffer.begin_use(stream)?));
        // SAFETY: The buffer is borrowed, so its memory is alive.
        let part = |ptr| unsafe { stream.backend().part(ptr, buffer.len() as usize) };
        let part = buffer.ptr().map(part).transpose();
        let part = part.map_err(|source| Error::Driver { device: buffer.device(), source })?;
        Ok(Self { part, _used: used, buffer: PhantomData })
    }

    /// Returns the memory object, for `clSetKernelArg`. It is null for an empty buffer, which kernels see as a null
    /// pointer.
    pub fn native(&self) -> cl_mem {
        self.part.as_ref().map_or(std::ptr::null_mut(), |part| part.raw())
    }

    /// Returns the memory object for a graph, which keeps it.
    pub(crate) fn memory(&self) -> Option<Arc<Memory>> {
        self.part.clone()
    }
}

impl OpenCl {
    /// Makes a kernel argument of `len` bytes of a live allocation of this device, for memory whose use is recorded
    /// elsewhere.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) for bytes that are not in one segment of this device; the
    /// errors of [`KernelArgument::new`].
    pub fn kernel_argument(&self, ptr: OpenClPtr, len: usize) -> DriverResult<KernelArgument<'static>> {
        let Some(_alive) = self.segment_of(ptr, len) else {
            let why = "the bytes are not in memory that this device has handed out";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "clCreateSubBuffer", why));
        };
        // SAFETY: The buffer object is kept until the call returns.
        let part = unsafe { self.part(ptr, len) }?;
        Ok(KernelArgument { part: Some(part), _used: None, buffer: PhantomData })
    }

    /// Returns the buffer object of a segment that contains these bytes. The handle counts, too: an address may be made
    /// up.
    fn segment_of(&self, ptr: OpenClPtr, len: usize) -> Option<Arc<Memory>> {
        let (buffer, start) = ptr.native();
        let segments = lock(&self.segments);
        let (segment, offset) = segments.find_range(ptr.trace_address(), len as u64)?;
        (segment.memory.raw() == buffer && offset == start as u64).then(|| Arc::clone(&segment.memory))
    }

    /// Returns the sub-buffer over a block. It is made outside the lock: if two threads make the same one, one is kept.
    ///
    /// # Safety
    /// * The buffer object is alive.
    unsafe fn part(&self, ptr: OpenClPtr, len: usize) -> DriverResult<Arc<Memory>> {
        let (buffer, offset) = ptr.native();
        let key = (offset, len);
        let address = ptr.trace_address();
        if let Some(part) = lock(&self.segments).find(address).and_then(|(segment, _)| segment.parts.get(&key)) {
            return Ok(Arc::clone(part));
        }
        let region = cl_buffer_region { origin: offset, size: len };
        let region = (&raw const region).cast();
        // SAFETY: The caller promises a live buffer object; the access flags are the buffer object's own.
        let part = unsafe { create_sub_buffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, region) };
        // SAFETY: The call has just returned this reference.
        let part = Arc::new(unsafe { Memory::owned(answer::of("clCreateSubBuffer", part)?) });
        if let Some((segment, _)) = lock(&self.segments).find_mut(address) {
            if segment.parts.len() == MOST {
                segment.parts.clear(); // current users hold their own references
            }
            segment.parts.insert(key, Arc::clone(&part));
        }
        Ok(part)
    }
}
