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
        self.allocate_wrapped(len, stream, identity)
    }

    /// Allocates like [`allocate`](Self::allocate) on the [current stream](Self::current_stream) of this thread, and
    /// passes the buffer to `wrap`: for types that contain one. This takes fewer instructions than wrapping the result,
    /// which would move the buffer.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[inline]
    pub fn allocate_on_current<T>(&'static self, len: u64, wrap: impl FnOnce(Buffer<B>) -> T) -> Result<T> {
        self.allocate_wrapped(len, self.current_stream(), wrap)
    }

    #[inline(always)]
    fn allocate_wrapped<T>(&'static self, len: u64, stream: Stream<B>, wrap: impl FnOnce(Buffer<B>) -> T) -> Result<T> {
        let Some(bytes) = NonZeroU64::new(len) else { return self.empty(stream).map(wrap) };
        let allocation = self.allocator().allocate(bytes, stream)?;
        let buffer = Buffer { accelerator: self, memory: Memory::Private(allocation) };
        if are_operators_observed() {
            return Ok(wrap(reported(buffer))); // moved there, so that the usual buffer need not be in memory
        }
        Ok(wrap(buffer))
    }

    #[cold]
    fn empty(&'static self, stream: Stream<B>) -> Result<Buffer<B>> {
        stream.check(self.instance())?;
        Ok(Buffer { accelerator: self, memory: Memory::Other { stream, between: None } })
    }
}

/// Reports the allocation of a buffer to the observers.
#[cold]
#[inline(never)]
fn reported<B: Backend>(buffer: Buffer<B>) -> Buffer<B> {
    report_operator(|| Operator::on(buffer.stream(), OperatorKind::Allocate, buffer.len()));
    buffer
}
