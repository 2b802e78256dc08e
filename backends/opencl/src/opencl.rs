#![allow(unsafe_code)] // the backend trait is unsafe to implement, and calls into the driver

use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{Accounting, Captures, Streams, byte_count, lock};
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, EventFlags, Graphs,
    MemoryInfo, Place, StreamKind, Unavailable,
};
use cl3::types::{cl_device_id, cl_mem_flags, cl_queue_properties};
use cl3::{command_queue, context, device, error_codes, event, ext, memory};

use crate::command_buffer::CommandBuffers;
use crate::handle::{Context, Event, Memory, Queue};
use crate::memory::{OpenClPtr, Segment, Segments};
use crate::pinned::PinnedMemory;
use crate::stream::{OpenClEvent, OpenClStream};
use crate::work::Work;
use crate::{answer, devices};

/// An OpenCL device: buffer objects as memory, in-order queues as streams, markers as events.
///
/// It hands out as much memory as the device has, or as `ACCELERATOR_OPENCL_CAPACITY` allows (such as `16GiB`).
#[derive(Debug)]
pub struct OpenCl {
    pub(crate) device: usize,
    pub(crate) context: Context,
    properties: DeviceProperties,
    accounting: Accounting,
    pub(crate) segments: Mutex<Segments>,
    pub(crate) pinned: PinnedMemory,
    /// The captures in progress on its streams.
    captures: Arc<Captures<Work>>,
    /// `None` if the device has none, and so no graphs.
    pub(crate) command_buffers: Option<CommandBuffers>,
    /// All queues, for operations that wait for all work.
    queues: Streams<Queue>,
    /// The queue for operations outside the streams.
    pub(crate) own: Arc<Queue>,
}

impl OpenCl {
    /// Opens the device with this number. It hands out at most `capacity` bytes; with `None`, as many as it has.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) for a number out of range; errors of the driver.
    pub fn with_capacity(ordinal: u32, capacity: Option<u64>) -> DriverResult<Self> {
        let device = devices::all().ok().and_then(|devices| devices.get(ordinal as usize));
        let no_device = || answer::error("clGetDeviceIDs", error_codes::CL_DEVICE_NOT_FOUND);
        let device = device.ok_or_else(no_device)?.id();
        let context = context::create_context(&[device], ptr::null(), None, ptr::null_mut());
        // SAFETY: The call has just returned this reference.
        let context = unsafe { Context::owned(answer::of("clCreateContext", context)?) };
        Self::new(context, device, capacity)
    }

    pub(crate) fn new(context: Context, device: cl_device_id, capacity: Option<u64>) -> DriverResult<Self> {
        let own = Arc::new(queue(&context, device, 0)?);
        // Try one, since some drivers list the extension but still reject the hint.
        let priorities = if hinted_queue(&context, device, -1).is_ok() { (1, -1) } else { (0, 0) };
        let total_memory = devices::number(device, device::CL_DEVICE_GLOBAL_MEM_SIZE)?;
        let name = devices::text(device, device::CL_DEVICE_NAME);
        let mut properties = DeviceProperties::new(name, capacity.unwrap_or(total_memory));
        properties.driver = devices::driver(device);
        properties.largest_allocation = devices::number(device, device::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
        properties.alignment = (devices::number(device, device::CL_DEVICE_MEM_BASE_ADDR_ALIGN)? / 8).max(1);
        properties.stream_priorities = priorities;
        properties.capability = devices::capability(device);
        let queues = Streams::new();
        queues.add(&own);
        Ok(Self {
            device: device.expose_provenance(),
            context,
            accounting: Accounting::new(properties.total_memory),
            properties,
            segments: Mutex::default(),
            pinned: PinnedMemory::default(),
            captures: Arc::default(),
            command_buffers: CommandBuffers::of(device),
            queues,
            own,
        })
    }

    /// Makes a stream over this queue. If `shared`, another library may use the queue too.
    pub(crate) fn stream_of(&self, queue: Queue, shared: bool) -> OpenClStream {
        let queue = Arc::new(queue);
        self.queues.add(&queue);
        OpenClStream::new(queue, shared, &self.captures)
    }

    /// Makes a stream of usual priority.
    pub(crate) fn plain_stream(&self) -> DriverResult<OpenClStream> {
        Ok(self.stream_of(queue(&self.context, self.native().1, 0)?, false))
    }

    /// Returns a host address for a copy. While the stream captures, it must be pinned: a graph must not remember other
    /// memory of the host, which callers may lend for one call only.
    fn captured(&self, at: NonNull<u8>, len: usize, stream: &OpenClStream) -> DriverResult<usize> {
        if stream.captures.is_capturing(stream.number) && !self.pinned.contains(at, len) {
            let why = "a graph cannot copy from or to pageable host memory: use pinned memory";
            return Err(DriverError::refused(DriverErrorKind::InvalidArgument, "copy", why));
        }
        Ok(at.as_ptr().expose_provenance())
    }

    /// Makes a buffer object. It may have no memory yet, as some drivers allocate it at the first use.
    pub(crate) fn buffer(&self, flags: cl_mem_flags, len: NonZeroU64) -> DriverResult<Memory> {
        // SAFETY: The context is alive, and no host memory is passed.
        let made = unsafe { memory::create_buffer(self.context.raw(), flags, len.get() as usize, ptr::null_mut()) };
        // SAFETY: The call has just returned this reference.
        Ok(unsafe { Memory::owned(answer::of_allocation("clCreateBuffer", made)?) })
    }

    /// Makes a buffer object that already has its memory. At its first use, it would be too late to report a lack of
    /// memory.
    fn backed_buffer(&self, len: NonZeroU64) -> DriverResult<Memory> {
        const CALL: &str = "clEnqueueMigrateMemObjects";
        let made = self.buffer(memory::CL_MEM_READ_WRITE, len)?;
        let (queue, flags) = (self.own.raw(), memory::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
        // SAFETY: The queue and the buffer object are alive; the list has one entry.
        let moved = unsafe { command_queue::enqueue_migrate_mem_object(queue, 1, &made.raw(), flags, 0, ptr::null()) };
        // SAFETY: The call has just returned this reference.
        let moved = unsafe { Event::owned(answer::of_allocation(CALL, moved)?) };
        answer::of_allocation(CALL, event::wait_for_events(&[moved.raw()]))?;
        Ok(made)
    }

    /// Waits for all work. The driver then frees the memory that was released while work still used it.
    fn finish(&self) {
        for queue in self.queues.alive() {
            let _ = command_queue::finish(queue.raw()); // work that failed has ended as well
        }
    }
}

// SAFETY: Buffer objects do not overlap and stay allocated. Queues are in order. A barrier waits for its marker, which
// is complete when the work before it is. The driver keeps a released buffer object until its last work is done.
// Nothing here panics or calls the core.
unsafe impl Backend for OpenCl {
    const KIND: DeviceKind = DeviceKind::new("opencl");
    type Ptr = OpenClPtr;
    type Stream = OpenClStream;
    type Event = OpenClEvent;

    fn probe() -> Result<u32, Unavailable> {
        devices::capacity()?;
        Ok(devices::all()?.len() as u32)
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        let why = "ACCELERATOR_OPENCL_CAPACITY is not a size";
        let refused = DriverError::refused(DriverErrorKind::InvalidArgument, "open", why);
        Self::with_capacity(ordinal, devices::capacity().map_err(|_| refused)?)
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        Ok(self.accounting.memory_info_with(devices::free_memory(self.native().1)))
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<OpenClStream> {
        Ok(self.stream_of(queue(&self.context, self.native().1, kind.priority())?, false))
    }

    fn synchronize(&self, stream: &OpenClStream) -> DriverResult<()> {
        stream.synchronize()
    }

    fn is_idle(&self, stream: &OpenClStream) -> DriverResult<bool> {
        stream.is_idle()
    }

    fn event(&self, flags: EventFlags) -> DriverResult<OpenClEvent> {
        flags.refuse_interprocess("event").map(|()| OpenClEvent::default())
    }

    fn event_id(&self, event: &OpenClEvent) -> u64 {
        event.id()
    }

    fn record(&self, event: &OpenClEvent, stream: &OpenClStream) -> DriverResult<()> {
        event.record(stream)
    }

    fn wait(&self, stream: &OpenClStream, event: &OpenClEvent) -> DriverResult<()> {
        event.wait_on(stream)
    }

    fn is_complete(&self, event: &OpenClEvent) -> DriverResult<bool> {
        event.is_complete()
    }

    fn wait_host(&self, event: &OpenClEvent) -> DriverResult<()> {
        event.wait()
    }

    fn elapsed_ns(&self, start: &OpenClEvent, end: &OpenClEvent) -> DriverResult<i64> {
        Ok(end.reached_ns()?.wrapping_sub(start.reached_ns()?) as i64)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<OpenClPtr> {
        if len.get() > self.properties.largest_allocation {
            return Err(answer::error("clCreateBuffer", error_codes::CL_INVALID_BUFFER_SIZE));
        }
        // The backend's own limit: some drivers hand out more memory than there is.
        let full = answer::error("clCreateBuffer", error_codes::CL_MEM_OBJECT_ALLOCATION_FAILURE);
        self.accounting.alloc(len.get(), full, || {
            let made = self.backed_buffer(len).or_else(|error| match error.kind {
                DriverErrorKind::OutOfMemory => {
                    self.finish();
                    self.backed_buffer(len)
                }
                _ => Err(error),
            })?;
            let buffer = made.raw();
            let base = lock(&self.segments).add(len, Segment::new(made)).map_err(|_| full)?;
            Ok(OpenClPtr::new(buffer, base))
        })
    }

    unsafe fn dealloc(&self, ptr: OpenClPtr, len: NonZeroU64) {
        let segment = lock(&self.segments).remove(ptr.trace_address());
        if let Some(segment) = segment {
            drop(segment); // the driver must have it back before the accounting shows room
            self.accounting.give_back(len.get());
        }
    }

    unsafe fn copy(
        &self,
        dst: Place<OpenClPtr>,
        src: Place<OpenClPtr>,
        len: NonZeroU64,
        stream: &OpenClStream,
    ) -> DriverResult<()> {
        let len = byte_count(len);
        let work = match (dst, src) {
            (Place::Device(to), Place::Device(from)) if to.overlaps(from, len) => {
                return Err(answer::error("clEnqueueCopyBuffer", error_codes::CL_MEM_COPY_OVERLAP));
            }
            (Place::Device(to), Place::Device(from)) => Work::Copy { to, from, len },
            (Place::Device(to), Place::Host(from)) => Work::Write { to, from: self.captured(from, len, stream)?, len },
            (Place::Host(to), Place::Device(from)) => Work::Read { to: self.captured(to, len, stream)?, from, len },
            (Place::Host(to), Place::Host(from)) => {
                stream.synchronize()?;
                // SAFETY: The caller promises two valid ranges that do not overlap; earlier work is done.
                unsafe { from.copy_to_nonoverlapping(to, len) };
                return Ok(());
            }
            _ => return Err(DriverError::unknown_place("copy")),
        };
        // SAFETY: The caller promises two valid ranges that do not overlap; one on the host stays valid until the
        // stream has done the copy.
        unsafe { stream.run(work) }
    }

    unsafe fn fill(&self, dst: OpenClPtr, value: u8, len: NonZeroU64, stream: &OpenClStream) -> DriverResult<()> {
        // SAFETY: The caller promises a range that is valid for writes.
        unsafe { stream.run(Work::Fill { at: dst, value, len: byte_count(len) }) }
    }

    fn is_capturing(&self, stream: &OpenClStream) -> DriverResult<bool> {
        Ok(stream.captures.is_capturing(stream.number))
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        self.command_buffers.is_some().then_some(self as _)
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        self.pin(len)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, _len: NonZeroU64) {
        // SAFETY: The caller promises the same.
        unsafe { self.unpin(ptr) };
    }
}

/// Makes a queue of this priority, or a plain one if the driver rejects the hint.
fn queue(context: &Context, device: cl_device_id, priority: i32) -> DriverResult<Queue> {
    if priority != 0
        && let Ok(queue) = hinted_queue(context, device, priority)
    {
        return Ok(queue);
    }
    let profiling = command_queue::CL_QUEUE_PROFILING_ENABLE;
    #[allow(deprecated, reason = "the call that drivers of every version have")]
    // SAFETY: The device is in the context.
    let made = unsafe { command_queue::create_command_queue(context.raw(), device, profiling) };
    // SAFETY: The call has just returned this reference.
    Ok(unsafe { Queue::owned(answer::of("clCreateCommandQueue", made)?) })
}

/// Makes a queue of higher (negative) or lower priority than usual. OpenCL: `cl_khr_priority_hints`.
fn hinted_queue(context: &Context, device: cl_device_id, priority: i32) -> DriverResult<Queue> {
    let hint = if priority < 0 { ext::CL_QUEUE_PRIORITY_HIGH_KHR } else { ext::CL_QUEUE_PRIORITY_LOW_KHR };
    let properties: [cl_queue_properties; 5] = [
        command_queue::CL_QUEUE_PROPERTIES.into(),
        command_queue::CL_QUEUE_PROFILING_ENABLE,
        ext::CL_QUEUE_PRIORITY_KHR,
        hint.into(),
        0,
    ];
    // SAFETY: The device is in the context; the list ends with 0.
    let made =
        unsafe { command_queue::create_command_queue_with_properties(context.raw(), device, properties.as_ptr()) };
    // SAFETY: The call has just returned this reference.
    Ok(unsafe { Queue::owned(answer::of("clCreateCommandQueueWithProperties", made)?) })
}

impl Drop for OpenCl {
    fn drop(&mut self) {
        self.finish(); // streams may outlive this, and their work may use its memory
    }
}
