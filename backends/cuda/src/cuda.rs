#![allow(unsafe_code)] // the backend trait is unsafe to implement, and calls into the driver

use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use accelerator_core::backend_kit::byte_count;
use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DriverError, DriverErrorKind, DriverResult, EventFlags, Graphs, MemoryInfo,
    MemoryInfoSource, PeerCopies, Place, StreamKind, Unavailable, VirtualMemory,
};
use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr};

use crate::calls::call;
use crate::context::Context;
use crate::devices;
use crate::graphs;
use crate::memory::CudaPtr;
use crate::native::Cudarc;
use crate::peer::Peers;
use crate::stream::{CudaEvent, CudaStream};
use crate::virtual_memory::Pager;

/// An NVIDIA GPU: its primary context, and the driver's streams, events and memory.
#[derive(Debug)]
pub struct Cuda {
    pub(crate) ordinal: u32,
    pub(crate) context: Arc<Context>,
    properties: DeviceProperties,
    pub(crate) peers: Peers,
    pub(crate) pager: Option<Pager>,
    pub(crate) cudarc: Cudarc,
}

impl Cuda {
    /// As [`open`](Backend::open), for programs that use CUDA's runtime (`cudaSetDevice`), too. It takes the context
    /// that is current on a thread for the thread's device. So calls of this device leave a thread that has no context
    /// without one. Those of a device from `open` leave it with the context of this device.
    ///
    /// # Errors
    /// As for `open`.
    pub fn open_beside_runtime(ordinal: u32) -> DriverResult<Self> {
        devices::opened().and_then(|()| Self::new(ordinal, true))
    }

    fn new(ordinal: u32, leaves_none: bool) -> DriverResult<Self> {
        let device = devices::device(ordinal)?;
        let context = Context::retain(device, leaves_none)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: The call writes two numbers.
        context.run(|| unsafe { call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) })?;
        let properties = devices::properties(device, (least, greatest))?;
        let pager = Pager::new(&context);
        let (peers, cudarc) = (Peers::default(), Cudarc::default());
        Ok(Self { ordinal, context, properties, peers, pager, cudarc })
    }
}

// SAFETY: `cuMemAlloc` returns memory that overlaps no other and stays allocated. Streams are in order,
// `cuStreamWaitEvent` orders them, and an event is complete when the work before it is, or when the device does no more
// work. `cuMemFree` waits for work that was submitted before. Nothing here panics or calls the core.
unsafe impl Backend for Cuda {
    const KIND: DeviceKind = DeviceKind::new("cuda");
    type Ptr = CudaPtr;
    type Stream = CudaStream;
    type Event = CudaEvent;

    fn probe() -> Result<u32, Unavailable> {
        devices::count()
    }

    fn open(ordinal: u32) -> DriverResult<Self> {
        devices::opened().and_then(|()| Self::new(ordinal, false))
    }

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: The call writes two numbers.
        self.context.run(|| unsafe { call!(cuMemGetInfo(&mut free, &mut total)) })?;
        Ok(MemoryInfo::new(free as u64, total as u64, MemoryInfoSource::Driver))
    }

    fn stream(&self, kind: StreamKind) -> DriverResult<CudaStream> {
        CudaStream::make(&self.context, kind)
    }

    fn synchronize(&self, stream: &CudaStream) -> DriverResult<()> {
        stream.synchronize()
    }

    fn is_idle(&self, stream: &CudaStream) -> DriverResult<bool> {
        stream.is_idle()
    }

    fn event(&self, flags: EventFlags) -> DriverResult<CudaEvent> {
        CudaEvent::make(&self.context, flags)
    }

    fn event_id(&self, event: &CudaEvent) -> u64 {
        event.native().addr() as u64
    }

    fn record(&self, event: &CudaEvent, stream: &CudaStream) -> DriverResult<()> {
        event.record(stream)
    }

    fn wait(&self, stream: &CudaStream, event: &CudaEvent) -> DriverResult<()> {
        event.wait_on(stream)
    }

    fn is_complete(&self, event: &CudaEvent) -> DriverResult<bool> {
        event.is_complete()
    }

    fn wait_host(&self, event: &CudaEvent) -> DriverResult<()> {
        event.wait()
    }

    fn elapsed_ns(&self, start: &CudaEvent, end: &CudaEvent) -> DriverResult<i64> {
        start.elapsed_ns(end)
    }

    fn alloc(&self, len: NonZeroU64) -> DriverResult<CudaPtr> {
        let mut at = 0;
        let len = byte_count(len);
        // SAFETY: The call writes an address.
        self.context.run_beside_captures(|| unsafe { call!(cuMemAlloc(&mut at, len)) })?;
        Ok(CudaPtr::from_native(at))
    }

    unsafe fn dealloc(&self, ptr: CudaPtr, _len: NonZeroU64) {
        // SAFETY: The caller frees an allocation of `alloc`, once. A failing call frees nothing.
        self.context.give_back(|| unsafe { call!(cuMemFree(ptr.native())) });
    }

    unsafe fn copy(
        &self,
        dst: Place<CudaPtr>,
        src: Place<CudaPtr>,
        len: NonZeroU64,
        stream: &CudaStream,
    ) -> DriverResult<()> {
        let (len, stream) = (byte_count(len), stream.native());
        // SAFETY, for all: The caller promises two valid ranges; those on the host stay valid until the stream has done
        // the copy.
        self.context.run(|| match (dst, src) {
            (Place::Device(to), Place::Device(from)) => {
                let (to, from) = (to.native(), from.native());
                // SAFETY: See above.
                unsafe { call!(cuMemcpyDtoDAsync(to, from, len, stream)) }
            }
            (Place::Device(to), Place::Host(from)) => {
                let (to, from) = (to.native(), from.as_ptr().cast());
                // SAFETY: See above.
                unsafe { call!(cuMemcpyHtoDAsync(to, from, len, stream)) }
            }
            (Place::Host(to), Place::Device(from)) => {
                let (to, from) = (to.as_ptr().cast(), from.native());
                // SAFETY: See above.
                unsafe { call!(cuMemcpyDtoHAsync(to, from, len, stream)) }
            }
            (Place::Host(to), Place::Host(from)) => {
                let [to, from] = [to, from].map(|at| at.as_ptr().expose_provenance() as CUdeviceptr);
                // SAFETY: See above. The driver detects which memory an address belongs to.
                unsafe { call!(cuMemcpyAsync(to, from, len, stream)) }
            }
            _ => Err(DriverError::unknown_place("cuMemcpyAsync")),
        })
    }

    unsafe fn fill(&self, dst: CudaPtr, value: u8, len: NonZeroU64, stream: &CudaStream) -> DriverResult<()> {
        let (to, len) = (dst.native(), byte_count(len));
        // SAFETY: The caller promises a range valid for writes.
        self.context.run(|| unsafe { call!(cuMemsetD8Async(to, value, len, stream.native())) })
    }

    fn alloc_host(&self, len: NonZeroU64) -> DriverResult<NonNull<u8>> {
        let (mut at, len) = (ptr::null_mut(), byte_count(len));
        // SAFETY: The call writes an address.
        let alloc = || unsafe { call!(cuMemHostAlloc(&mut at, len, CU_MEMHOSTALLOC_PORTABLE)) };
        self.context.run_beside_captures(alloc)?;
        let nowhere =
            || DriverError::refused(DriverErrorKind::Other, "cuMemHostAlloc", "the driver returned no address");
        NonNull::new(at.cast()).ok_or_else(nowhere)
    }

    unsafe fn dealloc_host(&self, ptr: NonNull<u8>, _len: NonZeroU64) {
        let at = ptr.as_ptr().cast();
        // SAFETY: The caller frees an allocation of `alloc_host`, once, and nothing uses it. A failing call frees
        // nothing.
        self.context.give_back(|| unsafe { call!(cuMemFreeHost(at)) });
    }

    fn is_capturing(&self, stream: &CudaStream) -> DriverResult<bool> {
        stream.is_capturing()
    }

    fn peer_copies(&self) -> Option<&dyn PeerCopies<Self>> {
        Some(self)
    }

    fn graphs(&self) -> Option<&dyn Graphs<Self>> {
        graphs::are_offered().then_some(self)
    }

    #[cfg(target_os = "linux")]
    fn interprocess(&self) -> Option<&dyn accelerator_core::Interprocess<CudaPtr>> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<CudaPtr>> {
        self.pager.as_ref().map(|pager| pager as _)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Destroying a stream does not wait for its work, which may still use memory. Only the context can wait for it.
        // SAFETY: The call has no arguments.
        self.context.give_back(|| unsafe { call!(cuCtxSynchronize()) });
    }
}
