//! Private memory pools and graphs.
#![allow(unsafe_code)] // replays a graph

use std::num::NonZeroU64;
use std::sync::Arc;

use accelerator::core::{DevicePtr, DriverResult};
use accelerator::host::Host;
use accelerator::{
    Buffer, CaptureMode, CaptureOptions, DriverError, DriverErrorKind, Error, Graph, GraphCapture, MemPool, MemPoolId,
    MemPoolOptions, MemPoolRequests, Result, SegmentSource, Stream, StreamGuard, empty_cache,
    generate_graph_pool_handle, graph, graph_pool_handle, is_current_stream_capturing, memory, use_mem_pool,
};

pub(crate) fn run() -> Result<()> {
    pools()?;
    graphs()
}

fn pools() -> Result<()> {
    let pool = MemPool::new(None)?;
    let buffer = {
        let _guard = use_mem_pool(&pool);
        Buffer::allocate(1, None)?
    };
    let all = pool.use_for(MemPoolRequests::All)?;
    assert_eq!((pool.use_count(), pool.device()), (2, buffer.device()));
    drop(all);
    assert_eq!(pool.snapshot(), memory::pool_snapshot(pool.id(), None)?);
    assert_eq!(pool.typed::<Host>()?.id(), pool.id());
    assert_eq!(memory::reserved_by_private_pools(None)?[&pool.id()].all.current, 2 << 20);
    drop(buffer);
    pool.trim()?;
    assert!(pool.snapshot().segments.is_empty());
    memory::empty_pool_cache(pool.id(), None)?;

    let options = MemPoolOptions { name: Some("whole".into()), no_split: true, ..MemPoolOptions::default() };
    let whole = MemPool::with_options(None, options.clone())?;
    assert_eq!((whole.name(), &memory::mem_pools(None)?[&whole.id()].name), (options.name.clone(), &options.name));
    let empty = MemPool::with_source::<Host>(None, Arc::new(Refuses), options)?;
    let _guard = use_mem_pool(&empty);
    assert!(matches!(Buffer::allocate(1, None), Err(Error::OutOfMemory(_))));
    Ok(())
}

fn graphs() -> Result<()> {
    let mut buffer = Buffer::from_slice(&[0u8; 4], None)?;
    let mut fill = Graph::new(None)?;
    let pool: MemPoolId = graph_pool_handle();
    assert_ne!(pool, generate_graph_pool_handle());
    let options = CaptureOptions { pool: Some(pool), mode: CaptureMode::Relaxed, ..CaptureOptions::default() };
    let capture: GraphCapture<'_> = graph(&mut fill, options)?;
    assert!(is_current_stream_capturing()? && capture.stream().is_capturing()?);
    buffer.fill(1)?;
    capture.end()?;
    assert_eq!((fill.pool(), fill.device()), (Some(pool), buffer.device()));
    assert_eq!(fill.typed::<Host>()?.pool(), Some(pool));
    fill.upload()?;
    // SAFETY: The buffer exists until it is read, and only the current stream uses it.
    unsafe { fill.replay()? };
    assert_eq!(buffer.to_vec::<u8>()?, [1; 4]);
    fill.reset()?;

    let side = Stream::new(None)?;
    let _guard = StreamGuard::new(&side)?;
    fill.capture_begin(None, CaptureMode::default())?;
    fill.capture_end()?;
    drop(fill);
    empty_cache()
}

/// A source without memory.
struct Refuses;

// SAFETY: It hands out nothing.
unsafe impl<P: DevicePtr> SegmentSource<P> for Refuses {
    fn alloc(&self, _len: NonZeroU64) -> DriverResult<P> {
        Err(DriverError::refused(DriverErrorKind::OutOfMemory, "alloc", "there is none"))
    }

    unsafe fn dealloc(&self, _ptr: P, _len: NonZeroU64) {}
}
