//! Segments and blocks.
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_char, c_int, c_void};

use accelerator_core::{AllocatorConfig, BlockSnapshot, BlockState, History, MIB, PoolKind, SegmentSnapshot};

use crate::boundary::{or, status};
use crate::devices::{Device, config, handle, if_open, opened};
use crate::history::{self, Entry};
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

type VisitSegment = extern "C" fn(*mut c_void, *const Segment, *const Block, usize);
type VisitEntry = extern "C" fn(*mut c_void, *const Entry);

/// Shows all segments with their blocks, or those of one private pool, and then the entries of the history, the oldest
/// first. Nothing is shown of a device that is not in use yet. The addresses at which `policy:compact` maps memory a
/// second time are not among the segments: their bytes are blocks of these. PyTorch: `snapshot`.
///
/// # Safety
/// Both functions may be called with `state`: `visit` with a segment and an array of blocks with its length, and
/// `visit_entry` with an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_snapshot(
    index: c_int,
    pool: PoolNumber,
    visit: VisitSegment,
    visit_entry: VisitEntry,
    state: *mut c_void,
) -> c_int {
    status(|| {
        let Some(device) = if_open(index) else { return Ok(()) };
        let (allocator, pool) = (device.allocator(), pool.id());
        // The snapshot records itself. As in PyTorch, that shows in the next one.
        let history = allocator.history();
        let snapshot = if pool.is_default() { allocator.snapshot() } else { allocator.pool_snapshot(pool) };
        for segment in &snapshot.segments {
            let blocks: Vec<Block> = segment.blocks.iter().map(|block| block_of(block, &history)).collect();
            visit(state, &segment_of(device, segment, &history), blocks.as_ptr(), blocks.len());
        }
        history
            .entries
            .iter()
            .filter_map(|entry| history::entry(device, entry))
            .for_each(|entry| visit_entry(state, &entry));
        Ok(())
    })
}

/// Shows the context of the allocation that starts at this address, if it has one. PyTorch: `getContextForPointer`.
///
/// # Safety
/// `visit` may be called with `state` and a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_context_at(
    address: u64,
    visit: extern "C" fn(*mut c_void, *mut c_void),
    state: *mut c_void,
) -> c_int {
    status(|| {
        for device in opened() {
            if let Some(context) = device.allocator().history().block_contexts.get(&address) {
                visit(state, history::context(Some(context)));
            }
        }
        Ok(())
    })
}

/// The settings that PyTorch puts into its snapshots.
#[repr(C)]
pub struct Settings {
    max_split_size: u64,
    garbage_collection_threshold: f64,
    /// From 1 MiB, for each power of two.
    roundup_power2_divisions: [u64; 16],
    expandable_segments: bool,
    graph_capture_record_stream_reuse: bool,
    /// The settings that differ from the defaults, as text, up to a zero byte.
    text: [c_char; 512],
}

/// Returns the settings.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_settings() -> Settings {
    let config = or(AllocatorConfig::default(), config);
    let mut text = [0; 512];
    let last = text.len() - 1; // a zero
    let bytes = or(String::new(), || config.to_string());
    text[..last].iter_mut().zip(bytes.bytes()).for_each(|(place, byte)| *place = byte as c_char);
    Settings {
        max_split_size: config.max_split_size,
        garbage_collection_threshold: config.garbage_collection_threshold,
        roundup_power2_divisions: std::array::from_fn(|power| config.roundup_power2_divisions.of(MIB << power)),
        expandable_segments: config.expandable_segments,
        graph_capture_record_stream_reuse: config.graph_capture_record_stream_reuse,
        text,
    }
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
