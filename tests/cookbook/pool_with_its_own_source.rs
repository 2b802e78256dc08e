use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator::core::DriverResult;
use accelerator::host::Host;
use accelerator::{Accelerator, Backend, Buffer, MIB, MemPool, MemPoolOptions, Result, SegmentSource, use_mem_pool};

/// Takes memory in a way of its own, such as with a call that registers it for a network card. Here it comes from the
/// host, and the bytes are counted.
struct Registered {
    device: &'static Accelerator<Host>,
    bytes: AtomicU64,
}

type Ptr = <Host as Backend>::Ptr;

// SAFETY: The memory is that of the host's backend, which satisfies the contract of `Backend::alloc`.
unsafe impl SegmentSource<Ptr> for Registered {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<Ptr> {
        let ptr = self.device.backend().alloc(len)?;
        self.bytes.fetch_add(len.get(), Ordering::Relaxed);
        Ok(ptr)
    }

    unsafe fn dealloc(&self, ptr: Ptr, len: NonZeroU64) {
        self.bytes.fetch_sub(len.get(), Ordering::Relaxed);
        // SAFETY: The caller promises what the backend requires.
        unsafe { self.device.backend().dealloc(ptr, len) };
    }
}

pub fn main() -> Result<()> {
    let source = Arc::new(Registered { device: Accelerator::open(0)?, bytes: AtomicU64::new(0) });
    let pool = MemPool::with_source::<Host>(None, source.clone(), MemPoolOptions::default())?;
    let guard = use_mem_pool(&pool);
    let message = Buffer::from_slice(&[7u8; 100], None)?; // cached as usual, in a segment of the source
    drop(guard);
    assert_eq!(source.bytes.load(Ordering::Relaxed), 2 * MIB);

    drop((message, pool));
    assert_eq!(source.bytes.load(Ordering::Relaxed), 0);
    Ok(())
}
