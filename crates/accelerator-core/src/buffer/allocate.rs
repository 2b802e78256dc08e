//! Allocation of buffers.

use std::convert::identity;
use std::num::NonZeroU64;

use super::{Buffer, Memory};
use crate::accelerator::Accelerator;
use crate::backend::Backend;
use crate::operator::{Operator, OperatorKind, are_operators_observed, report_operator};
use crate::stream::Stream;
use crate::types::Result;

impl<B: Backend> Accelerator<B> {
    /// Allocates a buffer of `len` bytes for work on `stream`. The contents are unspecified.
    ///
    /// # Errors
    /// As [`CachingAllocator::allocate`](crate::CachingAllocator::allocate).
    #[inline]
    pub fn allocate(&'static self, len: u64, stream: Stream<B>) -> Result<Buffer<B>> {
        stream.check(self.instance())?;
        self.allocate_checked(len, stream, identity)
    }

    /// Allocates like [`allocate`](Self::allocate) on the [current stream](Self::current_stream) of this thread, and
    /// passes the buffer to `wrap`: for types that contain one. This takes fewer instructions than wrapping the result,
    /// which would move the buffer.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[inline]
    pub fn allocate_on_current<T>(&'static self, len: u64, wrap: impl FnOnce(Buffer<B>) -> T) -> Result<T> {
        self.allocate_checked(len, self.current_stream(), wrap)
    }

    #[inline(always)]
    fn allocate_checked<T>(&'static self, len: u64, stream: Stream<B>, wrap: impl FnOnce(Buffer<B>) -> T) -> Result<T> {
        if let Some(bytes) = NonZeroU64::new(len)
            && !are_operators_observed()
            && let Some(allocation) = self.allocator().allocate_at_once(bytes, stream)
        {
            return Ok(wrap(Buffer { accelerator: self, memory: Memory::Private(allocation) }));
        }
        self.allocate_elsewhere(len, stream).map(wrap)
    }

    /// Allocates what the warm path does not serve: also a buffer without bytes, or one to report to observers.
    #[cold]
    #[inline(never)]
    fn allocate_elsewhere(&'static self, len: u64, stream: Stream<B>) -> Result<Buffer<B>> {
        let memory = match NonZeroU64::new(len) {
            Some(bytes) => Memory::Private(self.allocator().allocate(bytes, stream)?),
            None => Memory::Other { stream, between: None },
        };
        let buffer = Buffer { accelerator: self, memory };
        if len > 0 {
            report_operator(|| Operator::on(stream, OperatorKind::Allocate, len));
        }
        Ok(buffer)
    }
}
