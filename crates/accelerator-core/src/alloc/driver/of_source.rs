//! The source of a private pool, with its types erased.
#![allow(unsafe_code)] // calls that give memory back

use std::marker::PhantomData;
use std::sync::Arc;

use crate::alloc::arena::{DetachedSegment, OwnSegments};
use crate::alloc::blocks::Base;
use crate::backend::Backend;
use crate::mem_source::SegmentSource;
use crate::types::DriverResult;

/// A source of segments with the pointers of a backend.
pub(crate) struct SourceOf<B: Backend> {
    source: Arc<dyn SegmentSource<B::Ptr>>,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> SourceOf<B> {
    pub(crate) fn new(source: Arc<dyn SegmentSource<B::Ptr>>) -> Self {
        Self { source, backend: PhantomData }
    }
}

impl<B: Backend> OwnSegments for SourceOf<B> {
    fn alloc(&self, size: u64) -> DriverResult<Base> {
        self.source.alloc(super::len(size)).map(Base::new)
    }

    fn dealloc(&self, segment: DetachedSegment) {
        let DetachedSegment { base, size, .. } = segment;
        // SAFETY: `alloc` above made the base, because a pool's arenas only have segments of its source.
        let ptr = unsafe { base.ptr::<B::Ptr>() };
        // SAFETY: Only `Store::detach_segment` makes a `DetachedSegment`. It removes the segment that `alloc` returned,
        // so the segment is given back once. All of it was free, so no more work is submitted on it.
        unsafe { self.source.dealloc(ptr, super::len(size)) }
    }
}
