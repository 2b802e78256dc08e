//! G, private pools: their numbers, isolation, uses and sources: cases 67 to 70.
#![allow(unsafe_code)] // `SegmentSource`

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Backend, DriverErrorKind, DriverResult, Error, MIB, MemPool, MemPoolId, MemPoolOptions, MemPoolRequests,
    SegmentSource,
};

use super::context::{Device, Driver, address, all_are, bytes_of};
use super::{Case, Context, Outcome};
use crate::calls::{Call, failure};
use crate::erased::AnyPtr;
use crate::outcome::joined;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(67, "pool_ids_are_unique", pool_ids_are_unique).of_any_policy(),
        Case::new(68, "pools_are_isolated", pools_are_isolated).of_any_policy(),
        Case::new(69, "allocations_outlive_their_pool", allocations_outlive_their_pool),
        Case::new(70, "source_of_a_pool", source_of_a_pool).of_any_policy(),
    ]
}

/// Whether a call was refused because of this pool.
pub(super) fn is_refused<T, E: Into<Error>>(result: Result<T, E>, pool: MemPoolId) -> bool {
    matches!(result.map_err(Into::into), Err(Error::MemPool { pool: named, .. }) if named == pool)
}

fn pool_ids_are_unique(context: &Context) -> Outcome {
    let (device, other) = (context.device()?, context.device()?);
    let make =
        || (0..50).map(|_| Ok([device.pool()?.id(), MemPoolId::next_graph()])).collect::<Result<Vec<_>, Error>>();
    let mut ids = Vec::new();
    std::thread::scope(|scope| {
        for thread in [(); 4].map(|()| scope.spawn(make)) {
            ids.extend(joined(thread.join())??.into_iter().flatten());
        }
        Outcome::Ok(())
    })?;
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4 * 50 * 2, "each number is used once, dropped pools or not");
    for id in ids {
        let (graph, user) = id.numbers();
        assert!((graph == 0) != (user == 0), "{id} is of a program or of a graph");
        assert_eq!(device.allocator().pool_uses(id), 0, "{id} is gone");
    }

    let pool = device.pool()?;
    assert_eq!((device.allocator().pool_uses(pool.id()), other.allocator().pool_uses(pool.id())), (1, 0));
    let (allocator, default) = (device.allocator(), MemPoolId::DEFAULT);
    assert!(is_refused(allocator.retain_pool(default), default));
    assert!(is_refused(allocator.release_pool(default), default));
    assert!(is_refused(allocator.set_pool_use_on_oom(default, true), default));
    assert!(is_refused(allocator.set_pool_no_split(default), default));
    let route = allocator.begin_allocate_to_pool(default, MemPoolRequests::All);
    assert!(is_refused(route, default));
    Ok(())
}

fn pools_are_isolated(context: &Context) -> Outcome {
    // Just large enough: each pool reserves address space for all of the device, of which some drivers have little.
    let device = context.device_with(136 * MIB, "")?;
    let side = device.side_stream()?;
    let pools = [device.pool()?, device.pool()?];
    let places = [MemPoolId::DEFAULT, pools[0].id(), pools[1].id()];
    let alloc = |place: usize, bytes, stream| {
        let _guard = place.checked_sub(1).map(|pool| pools[pool].use_pool());
        device.alloc_on(bytes, stream)
    };
    for bytes in [512, 700_000, 3 * MIB, 15 * MIB] {
        for stream in [device.default_stream(), side] {
            // Each place leaves a free block that would serve the next one.
            let mut ranges = Vec::new();
            for (place, id) in places.into_iter().enumerate() {
                let allocation = alloc(place, bytes, stream)?;
                assert_eq!(device.pool_of(&allocation), Some(id), "{bytes} bytes");
                ranges.push(address(&allocation)..address(&allocation) + allocation.size());
                device.free(allocation)?;
                device.check_consistency();
            }
            let is_apart = |one: &Range<u64>, two: &Range<u64>| one.end <= two.start || two.end <= one.start;
            assert!((0..3).all(|one| (0..one).all(|two| is_apart(&ranges[one], &ranges[two]))), "{ranges:?}");
            let taken = || device.calls(Call::Alloc) + device.calls(Call::Create);
            let before = taken();
            for (place, range) in ranges.iter().enumerate().rev() {
                let again = alloc(place, bytes, stream)?;
                assert_eq!(address(&again), range.start, "each place has its own block, of {bytes} bytes");
                device.free(again)?;
            }
            assert_eq!(taken(), before, "no memory is taken from the driver");
        }
    }
    for (id, pool) in places[1..].iter().zip(&pools) {
        let snapshot = pool.snapshot();
        assert!(!snapshot.segments.is_empty(), "{snapshot:?}");
        assert!(snapshot.segments.iter().all(|segment| segment.mem_pool == *id), "{snapshot:?}");
    }
    // Memory of live pools stays; that of the default pool goes.
    device.allocator().empty_cache()?;
    let left = device.allocator().snapshot().segments;
    assert!(left.iter().all(|segment| places[1..].contains(&segment.mem_pool)), "{left:?}");
    assert_eq!(left.len(), pools.iter().map(|pool| pool.snapshot().segments.len()).sum::<usize>());
    device.check_consistency();
    Ok(())
}

fn allocations_outlive_their_pool(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.default_stream();
    let allocator = device.allocator();
    let pool = device.pool()?;
    let id = pool.id();
    assert_eq!(pool.uses(), 1);
    let guard = pool.use_pool();
    let nested = pool.use_pool();
    assert_eq!(pool.uses(), 3, "each guard is a use");
    let (mut kept, freed) = (device.buffer(3 * MIB, stream)?, device.alloc(30 * MIB)?);
    drop((nested, guard));
    allocator.retain_pool(id)?;
    assert_eq!(allocator.pool_uses(id), 2);
    let has_bytes = context.offers(Capability::Bytes);
    if has_bytes {
        kept.fill(7, stream)?;
    }
    device.free(freed)?;

    let deallocs = device.calls(Call::Dealloc);
    drop(pool);
    assert_eq!((allocator.pool_uses(id), device.calls(Call::Dealloc)), (1, deallocs), "another use keeps the memory");
    allocator.release_pool(id)?;
    assert!(is_refused(allocator.release_pool(id), id), "there is no use left");
    assert_eq!(allocator.pool_uses(id), 0);
    allocator.empty_pool_cache(id)?;
    assert_eq!(device.calls(Call::Dealloc), deallocs + 1, "the free segment goes back");
    assert_eq!(allocator.pool_snapshot(id).segments.len(), 1, "the other one stays with its block");

    // The rest of the segment serves no one else.
    let other = device.alloc(3 * MIB)?;
    assert_eq!(device.pool_of(&other), Some(MemPoolId::DEFAULT));
    if has_bytes {
        all_are(&bytes_of(&kept, stream)?, 7, "the buffer must keep its bytes")?;
    }
    device.check_consistency();
    let place = kept.ptr();
    drop(kept);
    let next = device.alloc(3 * MIB)?;
    assert_ne!(Some(next.ptr()), place, "nor does the block, once it is free");
    device.free_all([other, next])?;
    allocator.empty_cache()?;
    assert_eq!(device.reserved(), 0);
    assert!(is_refused(allocator.set_pool_no_split(id), id), "the pool is forgotten");

    // Without allocations, the memory goes back with the handle.
    let pool = device.pool()?;
    device.free(device.alloc_in(&pool, 3 * MIB)?)?;
    drop(pool);
    assert_eq!(device.reserved(), 0);
    Ok(())
}

/// Takes its segments from the driver, and counts them.
struct Counted {
    device: Device,
    allocs: AtomicU64,
    deallocs: AtomicU64,
    bytes: AtomicU64,
    /// Refuses the next request for this reason.
    refuse: Mutex<Option<DriverErrorKind>>,
}

impl Counted {
    fn counts(&self) -> [u64; 3] {
        [&self.allocs, &self.deallocs, &self.bytes].map(|count| count.load(Ordering::SeqCst))
    }

    fn refuse(&self, kind: DriverErrorKind) {
        *lock(&self.refuse) = Some(kind);
    }

    /// Looks at the allocator, which deadlocks if a lock is held.
    fn look(&self) {
        let _ = (self.device.statistics(), self.device.allocator().snapshot());
    }
}

// SAFETY: The memory is the driver's.
unsafe impl SegmentSource<AnyPtr> for Counted {
    fn alloc(&self, len: NonZeroU64) -> DriverResult<AnyPtr> {
        self.look();
        if let Some(kind) = lock(&self.refuse).take() {
            return Err(failure(Call::Alloc, kind, "refused by the source"));
        }
        let ptr = self.device.backend().alloc(len)?;
        self.allocs.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(len.get(), Ordering::SeqCst);
        Ok(ptr)
    }

    unsafe fn dealloc(&self, ptr: AnyPtr, len: NonZeroU64) {
        self.look();
        // SAFETY: The caller promises that it is one allocation of `alloc` above, which is the driver's.
        unsafe { self.device.backend().dealloc(ptr, len) };
        self.deallocs.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_sub(len.get(), Ordering::SeqCst);
    }
}

fn source_of_a_pool(context: &Context) -> Outcome {
    // Segments of a source are never expandable.
    for settings in ["", "expandable_segments:True"] {
        let device = context.device_with(512 * MIB, settings)?;
        let source = Arc::new(Counted {
            device,
            allocs: AtomicU64::new(0),
            deallocs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            refuse: Mutex::new(None),
        });
        let handed_over: Arc<dyn SegmentSource<AnyPtr>> = Arc::<Counted>::clone(&source);
        let pool = MemPool::with_source(device.accelerator(), handed_over, MemPoolOptions::default())?;
        serves_from_its_source(device, &pool, &source)?;
        drop(pool);
        assert_eq!(source.counts(), [4, 4, 0], "everything went back to the source");
        assert_eq!(Arc::strong_count(&source), 1, "and the source is dropped with the pool");
        assert_eq!(device.reserved(), 0);
    }
    Ok(())
}

fn serves_from_its_source(device: Device, pool: &MemPool<Driver>, source: &Counted) -> Outcome {
    let sizes = [700, 700, 3 * MIB, 3 * MIB, 30 * MIB];
    let live: Vec<_> = sizes.into_iter().map(|bytes| device.alloc_in(pool, bytes)).collect::<Result<_, _>>()?;
    assert_eq!(source.counts(), [3, 0, (2 + 20 + 30) * MIB], "small blocks share a segment, and so do large ones");
    let snapshot = pool.snapshot();
    assert!(snapshot.segments.iter().all(|segment| !segment.expandable), "{snapshot:?}");
    assert_eq!(device.reserved(), 52 * MIB);
    device.check_consistency();

    // A refusal is an error, after all free memory outside of live pools went back.
    device.free(device.alloc(5 * MIB)?)?;
    source.refuse(DriverErrorKind::Other);
    let refused = device.alloc_in(pool, 40 * MIB);
    assert!(
        matches!(&refused, Err(Error::Driver { source, .. }) if source.kind == DriverErrorKind::Other),
        "{refused:?}"
    );
    source.refuse(DriverErrorKind::OutOfMemory);
    let after_a_retry = device.alloc_in(pool, 40 * MIB)?;
    assert_eq!(device.statistics().num_alloc_retries, 1);
    assert_eq!(device.reserved(), 92 * MIB, "the cache outside of the pool went back");
    device.check_consistency();

    device.free_all(live)?;
    device.free(after_a_retry)?;
    device.allocator().empty_cache()?;
    assert_eq!(source.counts(), [4, 0, 92 * MIB], "the pool is live, so it keeps its memory");
    device.check_consistency();
    Ok(())
}
