//! Sources of pools that have pools of their own.
#![allow(unsafe_code, reason = "the trait of sources is unsafe to implement")]

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_conformance::{DriverSource, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DriverResult, MIB, MemPool, MemPoolOptions, SegmentSource,
};

use crate::waiting::soon;

struct WithPool {
    source: DriverSource<Sim>,
    _pool: MemPool<Sim>,
}

// SAFETY: The memory is that of the source inside.
unsafe impl SegmentSource<<Sim as Backend>::Ptr> for WithPool {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<<Sim as Backend>::Ptr> {
        self.source.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: <Sim as Backend>::Ptr, len: NonZeroU64) {
        // SAFETY: As for this call.
        unsafe { self.source.dealloc(ptr, len) };
    }
}

/// The end of the outer pool drops its source, and so the inner pool.
#[test]
fn a_source_with_a_pool_is_dropped_under_no_lock() {
    let used = soon(|| {
        let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
        let inner = MemPool::new(device, MemPoolOptions::default()).unwrap();
        {
            let _guard = inner.use_pool();
            drop(device.allocate(MIB, device.default_stream()).unwrap());
        }
        let source = WithPool { source: DriverSource::new(device.backend()), _pool: inner };
        let outer = MemPool::with_source(device, Arc::new(source), MemPoolOptions::default()).unwrap();
        {
            let _guard = outer.use_pool();
            drop(device.allocate(MIB, device.default_stream()).unwrap());
        }
        drop(outer);
        device.backend().used()
    });
    assert_eq!(used, 0);
}

/// Panics when it gets its first segment back.
struct Panics {
    source: DriverSource<Sim>,
    returned: Arc<AtomicU32>,
}

// SAFETY: The memory is that of the source inside.
unsafe impl SegmentSource<<Sim as Backend>::Ptr> for Panics {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<<Sim as Backend>::Ptr> {
        self.source.alloc(len)
    }

    unsafe fn dealloc(&self, ptr: <Sim as Backend>::Ptr, len: NonZeroU64) {
        // SAFETY: As for this call.
        unsafe { self.source.dealloc(ptr, len) };
        assert!(self.returned.fetch_add(1, Ordering::Relaxed) > 0, "this panic is part of the test");
    }
}

/// The others were lost, and counted for ever.
#[test]
fn a_source_that_panics_gets_all_segments_back() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let returned = Arc::new(AtomicU32::new(0));
    let source = Panics { source: DriverSource::new(device.backend()), returned: Arc::clone(&returned) };
    let pool = MemPool::with_source(device, Arc::new(source), MemPoolOptions::default()).unwrap();
    {
        let _guard = pool.use_pool();
        let _segments: Vec<_> = (0..3).map(|_| device.allocate(20 * MIB, device.default_stream()).unwrap()).collect();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| pool.trim())).is_err());
    let reserved = device.allocator().statistics().reserved_bytes.all.current;
    assert_eq!((returned.load(Ordering::Relaxed), reserved, device.backend().used()), (3, 0, 0));
    drop(device.allocate(100 * MIB, device.default_stream()).unwrap());
}

/// The source was never asked, and nobody said so.
#[test]
fn a_pool_that_can_be_paused_takes_no_source() {
    let device = Accelerator::new(Sim::new(100 * MIB), 0, AllocatorConfig::default()).unwrap();
    let pool = MemPool::new(device, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap();
    let source: Arc<dyn SegmentSource<_>> = Arc::new(DriverSource::new(device.backend()));
    device.allocator().retain_pool_with_source(pool.id(), Arc::clone(&source)).unwrap();
    assert_eq!(Arc::strong_count(&source), 1, "the pool has kept it");
}
