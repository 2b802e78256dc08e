//! A kernel for each backend that has kernels, to be launched on our memory and our streams: y += a · x.

mod cuda;
mod host;
mod opencl;
mod xpu;

use std::error::Error;

use accelerator_core::{Buffer, Stream};

pub(crate) use self::cuda::saxpy as cuda_saxpy;
pub(crate) use self::host::saxpy as host_saxpy;
pub(crate) use self::opencl::saxpy as opencl_saxpy;
pub(crate) use self::xpu::saxpy as xpu_saxpy;

/// Launches the kernel over `x` and `y`, which have the same number of floats, on a stream. Asynchronous or not.
pub(crate) type Saxpy<B> = fn(f32, &Buffer<B>, &mut Buffer<B>, Stream<B>) -> Launched;

pub(crate) type Launched = Result<(), Box<dyn Error + Send + Sync>>;
