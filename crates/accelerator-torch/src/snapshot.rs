//! Segments and blocks.
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_int, c_void};

use accelerator_core::{BlockSnapshot, BlockState, History, MemPoolId, PoolKind, SegmentSnapshot, Snapshot};

use crate::boundary::status;
use crate::devices::{Device, device, handle};
use crate::history;
use crate::pools::PoolNumber;

/// A segment.
#[repr(C)]
pub struct Segment {
    address: u64,
    total: u64,
    requested: u64,
    allocated: u64,
    active: u64,
    stream: usize,
    created: u64,
    pool: PoolNumber,
    /// What PyTorch returned for the context of its allocation; null if there is none.
    context: *mut c_void,
    is_large: bool,
    is_expandable: bool,
}

/// A block.
#[repr(C)]
pub struct Block {
    address: u64,
    size: u64,
    requested: u64,
    /// As for a segment.
    context: *mut c_void,
    is_allocated: bool,
    /// Whether it is allocated or still in use by a stream.
    is_active: bool,
}

type Visit = extern "C" fn(*mut c_void, *const Segment, *const Block, usize);

/// Shows all segments with their blocks, or those of one private pool. The addresses at which `policy:compact` maps
/// memory a second time are not among them: their bytes are blocks of the segments.
///
/// # Safety
/// `visit` may be called with `state`, a segment, and an array of blocks with its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_snapshot(
    index: c_int,
    pool: PoolNumber,
    visit: Visit,
    state: *mut c_void,
) -> c_int {
    status(|| {
        let device = device(index)?;
        let allocator = device.allocator();
        let history = allocator.history();
        let of_pool =
            |pool: MemPoolId| if pool.is_default() { history.snapshot.clone() } else { allocator.pool_snapshot(pool) };
        let Snapshot { segments, .. } = of_pool(pool.id());
        for segment in &segments {
            let blocks: Vec<Block> = segment.blocks.iter().map(|block| block_of(block, &history)).collect();
            visit(state, &segment_of(device, segment, &history), blocks.as_ptr(), blocks.len());
        }
        Ok(())
    })
}

fn segment_of(device: Device, segment: &SegmentSnapshot, history: &History) -> Segment {
    Segment {
        address: segment.address,
        total: segment.total_size,
        requested: segment.requested_size,
        allocated: segment.allocated_size,
        active: segment.active_size,
        stream: handle(device, segment.stream),
        created: segment.created,
        pool: PoolNumber::of(segment.mem_pool),
        context: history::context(history.segment_contexts.get(&segment.address)),
        is_large: segment.pool == PoolKind::Large,
        is_expandable: segment.expandable,
    }
}

fn block_of(block: &BlockSnapshot, history: &History) -> Block {
    Block {
        address: block.address,
        size: block.size,
        requested: block.requested_size,
        context: history::context(history.block_contexts.get(&block.address)),
        is_allocated: matches!(block.state, BlockState::Allocated | BlockState::Aliased),
        is_active: block.state != BlockState::Inactive,
    }
}
