//! A kernel for each backend that has kernels, launched on our memory and streams: y += a · x.

mod cuda;
mod host;
mod opencl;
mod vulkan;
mod xpu;

use std::error::Error;

use accelerator_conformance::AnyBackend;
use accelerator_core::{Backend, Buffer, Stream};

pub(crate) use self::cuda::saxpy as cuda_saxpy;
pub(crate) use self::host::saxpy as host_saxpy;
pub(crate) use self::opencl::saxpy as opencl_saxpy;
pub(crate) use self::vulkan::saxpy as vulkan_saxpy;
pub(crate) use self::xpu::saxpy as xpu_saxpy;

/// Launches the kernel on a stream. `x` and `y` have the same number of floats. The launch may be asynchronous.
pub(crate) type Saxpy<B> = fn(f32, &Buffer<B>, &mut Buffer<B>, Stream<B>) -> Launched;

pub(crate) type Launched = Result<(), Box<dyn Error + Send + Sync>>;

/// The arguments of the kernel in the driver's types. The use of the buffers on the stream is recorded.
struct Native<B: Backend> {
    backend: &'static B,
    stream: &'static B::Stream,
    x: B::Ptr,
    y: B::Ptr,
    /// The number of floats in each buffer, at least 1.
    count: usize,
}

impl<B: Backend> Native<B> {
    /// Returns the arguments, or `None` if the buffers are empty.
    fn of(
        x: &Buffer<AnyBackend>,
        y: &mut Buffer<AnyBackend>,
        stream: Stream<AnyBackend>,
    ) -> Result<Option<Self>, Box<dyn Error + Send + Sync>> {
        x.record_use(stream)?;
        y.record_use(stream)?;
        let (count, any) = (y.slice::<f32>()?.len(), stream.backend());
        let (Some(x), Some(y)) = (x.ptr(), y.ptr()) else { return Ok(None) };
        let (x, y) = (any.ptr_of::<B>(x)?, any.ptr_of::<B>(y)?);
        Ok(Some(Self { backend: any.of::<B>()?, stream: stream.native().of::<B>()?, x, y, count }))
    }
}
