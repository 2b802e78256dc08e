//! Sources of pools that have pools of their own.
#![allow(unsafe_code, reason = "the trait of sources is unsafe to implement")]

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelerator_conformance::{DriverSource, Sim};
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, DriverResult, MIB, MemPool, MemPoolOptions, SegmentSource,
};

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
    let (done, is_done) = channel();
    thread::spawn(move || {
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
        done.send(device.backend().used()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(0), "it waits for itself");
}
