//! The kernel that `accel verify` launches on the memory and the streams of a backend.

use std::error::Error;

use accelerator_conformance::AnyBackend;
use accelerator_core::{Backend, Buffer, Stream};

/// A launch of the kernel `y[i] += a · x[i]` for all `i` below `count`, in the backend's own types.
///
/// The core has recorded that the stream uses both buffers, so the launch may be asynchronous.
#[derive(Debug)]
#[non_exhaustive]
pub struct Saxpy<B: Backend> {
    /// The device.
    pub backend: &'static B,
    /// The stream to launch on.
    pub stream: &'static B::Stream,
    /// The factor.
    pub a: f32,
    /// The floats that are read.
    pub x: B::Ptr,
    /// The floats that are read and written. They do not overlap those at `x`.
    pub y: B::Ptr,
    /// The number of floats in each buffer, at least 1.
    pub count: usize,
}

/// Whether the kernel was launched.
pub type Launched = Result<(), Box<dyn Error + Send + Sync>>;

/// Launches the kernel on buffers of any backend.
pub(crate) type Launch<B> = dyn Fn(f32, &Buffer<B>, &mut Buffer<B>, Stream<B>) -> Launched + Send;

impl<B: Backend> Saxpy<B> {
    /// Launches the kernel on these buffers of a `B`, which have the same length. Does nothing if they are empty.
    pub(super) fn launch(
        launch: fn(Self) -> Launched,
        a: f32,
        x: &Buffer<AnyBackend>,
        y: &mut Buffer<AnyBackend>,
        stream: Stream<AnyBackend>,
    ) -> Launched {
        x.record_use(stream)?;
        y.record_use(stream)?;
        let (count, any) = (y.slice::<f32>()?.len(), stream.backend());
        let (Some(x), Some(y)) = (x.ptr(), y.ptr()) else { return Ok(()) };
        let (x, y) = (any.ptr_of::<B>(x)?, any.ptr_of::<B>(y)?);
        launch(Self { backend: any.of::<B>()?, stream: stream.native().of::<B>()?, a, x, y, count })
    }
}
