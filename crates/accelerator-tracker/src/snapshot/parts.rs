//! Creates the segments, entries and annotations of a snapshot from a file.

use std::sync::Arc;

use super::fields::{Fields, Wrong};
use super::frames::FrameTable;
use super::settings;
use super::types::{Annotation, Block, BlockState, PoolId, PoolKind, Segment, Setting, TraceAction, TraceEntry};
use super::write::{ALIASED, PAUSED};
use crate::file::excerpt;
use crate::pickle::{Halt, Heap, Value, View};

/// The largest segment of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;

/// How many keys of a request are looked at, which many blocks may share. PyTorch writes three.
const MOST_KEYS: usize = 16;

/// The maximum length of strings under unknown keys. Longer ones are skipped: a file can refer to a string a million
/// times, and code that shows or writes the result would repeat it as often.
const LONGEST_OTHER: usize = 1 << 10;

/// Creates the parts of a snapshot from the objects of a pickle.
pub(super) struct Parts {
    frames: FrameTable,
    nothing: Arc<str>,
    /// The text that PyTorch writes if its compiler was not involved.
    no_context: Arc<str>,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self { frames: FrameTable::new(), nothing: Arc::from(""), no_context: Arc::from("N/A") }
    }

    pub(super) fn segment<S: From<Wrong>>(
        &mut self,
        heap: &mut Heap,
        value: Value,
        offset: u64,
    ) -> Result<Segment, Halt<S>> {
        let view = View::new(heap, value);
        let fields = Fields::new("a segment", view, offset);
        let mut found = SegmentFields::default();
        for (key, value) in fields.of_own(view).map_err(stop)? {
            found.take(fields, key, value).map_err(stop)?;
        }
        heap.hand(value);
        let address = found.address.ok_or_else(|| stop(fields.missing("address")))?;
        let total_size = found.total_size.ok_or_else(|| stop(fields.missing("total_size")))?;
        let frames = self.frames.list(heap, found.frames, fields)?;
        let mut blocks = Vec::new();
        if let Some(list) = found.blocks {
            let room = heap.charge_each::<Block>(list)?;
            let items = fields.items("blocks", View::new(heap, list)).map_err(stop)?;
            blocks.reserve_exact(items.len());
            let mut next = address;
            for block in items {
                let block = self.block(heap, block, fields.offset(), next)?;
                next = block.address.saturating_add(block.size);
                blocks.push(block);
            }
            heap.hand(list);
            heap.discharge(room); // the visitor's now
        }
        let sum = |wanted: fn(&Block) -> bool, size: fn(&Block) -> u64| {
            blocks.iter().filter(|block| wanted(block)).map(size).fold(0, u64::saturating_add)
        };
        let active = |block: &Block| block.state.is_active();
        let small = total_size <= SMALL_SEGMENT;
        Ok(Segment {
            device: found.device,
            address,
            total_size,
            allocated_size: found
                .allocated_size
                .unwrap_or_else(|| sum(|block| block.state == BlockState::Allocated, |block| block.size)),
            active_size: found.active_size.unwrap_or_else(|| sum(active, |block| block.size)),
            requested_size: found.requested_size.unwrap_or_else(|| sum(active, |block| block.requested_size)),
            stream: found.stream,
            segment_type: found.segment_type.unwrap_or(if small { PoolKind::Small } else { PoolKind::Large }),
            pool_id: found.pool_id,
            is_expandable: found.is_expandable,
            is_paused: found.is_paused,
            frames,
            blocks,
        })
    }

    /// Reads a block. `next` is its address if the file does not contain it.
    fn block<S: From<Wrong>>(
        &mut self,
        heap: &mut Heap,
        value: Value,
        offset: u64,
        next: u64,
    ) -> Result<Block, Halt<S>> {
        let view = View::new(heap, value);
        let fields = Fields::new("a block", view, offset);
        let (mut address, mut size, mut requested, mut state) = (next, None, None, None);
        let (mut aliased, mut frames, mut last_use) = (false, None, None);
        for (key, value) in fields.of_own(view).map_err(stop)? {
            match &**key {
                "address" => address = fields.unsigned(key, value).map_err(stop)?,
                "size" => size = Some(fields.unsigned(key, value).map_err(stop)?),
                "requested_size" => requested = Some(fields.unsigned(key, value).map_err(stop)?),
                "state" => state = Some(block_state(fields, key, value).map_err(stop)?),
                ALIASED => aliased = fields.flag(key, value).map_err(stop)?,
                "frames" => frames = Some(value.value()),
                // PyTorch 1.13 and 2.0 write the requests that the block served, the last one first.
                "history" => last_use = value.items().and_then(|mut uses| uses.next()),
                _ => {}
            }
        }
        let mut used = None;
        for (key, value) in last_use.into_iter().flat_map(|last| last.pairs().into_iter().flatten().take(MOST_KEYS)) {
            match key.text().map(|key| &**key) {
                Some("real_size") => used = value.unsigned(),
                Some("frames") => frames = frames.or(Some(value.value())),
                _ => {}
            }
        }
        let last_use = last_use.map(View::value);
        heap.hand(value);
        last_use.into_iter().for_each(|last| heap.hand(last));
        let size = size.ok_or_else(|| stop(fields.missing("size")))?;
        let state = state.ok_or_else(|| stop(fields.missing("state")))?;
        let state = if aliased { BlockState::Aliased } else { state };
        let frames = self.frames.list(heap, frames, fields)?;
        Ok(Block { address, size, requested_size: requested.or(used).unwrap_or(size), state, frames })
    }

    pub(super) fn entry<S: From<Wrong>>(
        &mut self,
        heap: &mut Heap,
        value: Value,
        offset: u64,
    ) -> Result<TraceEntry, Halt<S>> {
        let view = View::new(heap, value);
        let fields = Fields::new("an entry of the history", view, offset);
        let mut found = EntryFields::default();
        for (key, value) in fields.of_own(view).map_err(stop)? {
            found.take(fields, key, value).map_err(stop)?;
        }
        heap.hand(value);
        let action = found.action(fields).map_err(stop)?;
        let means_nothing = matches!(action, TraceAction::Snapshot | TraceAction::Other);
        let needs_address = !means_nothing && !matches!(action, TraceAction::OutOfMemory { .. });
        let known = |value: Option<u64>, needed: bool, key| match value {
            None if needed => Err(stop(fields.missing(key))),
            value => Ok(value.unwrap_or(0)),
        };
        Ok(TraceEntry {
            action,
            address: known(found.address, needs_address, "addr")?,
            size: known(found.size, !means_nothing, "size")?,
            stream: found.stream,
            time_us: found.time_us,
            frames: self.frames.list(heap, found.frames, fields)?,
            pool_id: found.pool_id,
            user_metadata: found.user_metadata.unwrap_or_else(|| Arc::clone(&self.nothing)),
            compile_context: found.compile_context.unwrap_or_else(|| Arc::clone(&self.no_context)),
            other: found.other,
        })
    }

    pub(super) fn annotation(&self, view: View<'_>, offset: u64) -> Result<Annotation, Wrong> {
        let fields = Fields::new("an annotation", view, offset);
        let (mut stage, mut name, mut device, mut time_us) = (None, None, 0, 0);
        for (key, value) in fields.of_own(view)? {
            match &**key {
                "stage" => stage = Some(Arc::clone(fields.text(key, value)?)),
                "name" => name = Some(Arc::clone(fields.text(key, value)?)),
                "device" => device = fields.device(key, value)?,
                "time_us" => time_us = fields.integer(key, value)?,
                _ => {}
            }
        }
        let stage = stage.ok_or_else(|| fields.missing("stage"))?;
        let name = name.ok_or_else(|| fields.missing("name"))?;
        Ok(Annotation { stage, name, device, time_us })
    }
}

fn stop<S: From<Wrong>>(wrong: Wrong) -> Halt<S> {
    Halt::Stop(wrong.into())
}

#[derive(Default)]
struct SegmentFields {
    device: u32,
    address: Option<u64>,
    total_size: Option<u64>,
    allocated_size: Option<u64>,
    active_size: Option<u64>,
    requested_size: Option<u64>,
    stream: u64,
    segment_type: Option<PoolKind>,
    pool_id: PoolId,
    is_expandable: bool,
    is_paused: bool,
    frames: Option<Value>,
    blocks: Option<Value>,
}

impl SegmentFields {
    fn take(&mut self, fields: Fields, key: &str, value: View<'_>) -> Result<(), Wrong> {
        match key {
            "device" => self.device = fields.device(key, value)?,
            "address" => self.address = Some(fields.unsigned(key, value)?),
            "total_size" => self.total_size = Some(fields.unsigned(key, value)?),
            "allocated_size" => self.allocated_size = Some(fields.unsigned(key, value)?),
            "active_size" => self.active_size = Some(fields.unsigned(key, value)?),
            "requested_size" => self.requested_size = Some(fields.unsigned(key, value)?),
            "stream" => self.stream = fields.unsigned(key, value)?,
            "segment_type" => {
                self.segment_type = Some(match &**fields.text(key, value)? {
                    "small" => PoolKind::Small,
                    "large" => PoolKind::Large,
                    other => return Err(fields.wrong(format!("unknown `segment_type` `{}`", excerpt(other)))),
                });
            }
            "segment_pool_id" => self.pool_id = fields.pair(key, value)?,
            "is_expandable" => self.is_expandable = fields.flag(key, value)?,
            PAUSED => self.is_paused = fields.flag(key, value)?,
            "frames" => self.frames = Some(value.value()),
            "blocks" => self.blocks = Some(value.value()),
            _ => {}
        }
        Ok(())
    }
}

fn block_state(fields: Fields, key: &str, value: View<'_>) -> Result<BlockState, Wrong> {
    match &**fields.text(key, value)? {
        "active_allocated" => Ok(BlockState::Allocated),
        "active_awaiting_free" | "active_pending_free" => Ok(BlockState::PendingFree),
        "inactive" => Ok(BlockState::Inactive),
        other => Err(fields.wrong(format!("unknown block state `{}`", excerpt(other)))),
    }
}

#[derive(Default)]
struct EntryFields {
    action: Option<Arc<str>>,
    address: Option<u64>,
    size: Option<u64>,
    device_free: u64,
    stream: u64,
    time_us: i64,
    frames: Option<Value>,
    pool_id: PoolId,
    user_metadata: Option<Arc<str>>,
    compile_context: Option<Arc<str>>,
    other: Vec<(Arc<str>, Setting)>,
}

impl EntryFields {
    fn take(&mut self, fields: Fields, key: &Arc<str>, value: View<'_>) -> Result<(), Wrong> {
        match &**key {
            "action" => self.action = Some(Arc::clone(fields.text(key, value)?)),
            "addr" => self.address = Some(fields.unsigned(key, value)?),
            "size" => self.size = Some(fields.unsigned(key, value)?),
            "device_free" => self.device_free = fields.unsigned(key, value)?,
            "stream" => self.stream = fields.unsigned(key, value)?,
            "time_us" => self.time_us = fields.integer(key, value)?,
            "frames" => self.frames = Some(value.value()),
            "pool_id" => self.pool_id = fields.pair(key, value)?,
            "user_metadata" => self.user_metadata = Some(Arc::clone(fields.text(key, value)?)),
            "compile_context" => self.compile_context = Some(Arc::clone(fields.text(key, value)?)),
            _ => self.other.extend(settings::plain(value, LONGEST_OTHER).map(|value| (Arc::clone(key), value))),
        }
        Ok(())
    }

    fn action(&mut self, fields: Fields) -> Result<TraceAction, Wrong> {
        let word = self.action.take().ok_or_else(|| fields.missing("action"))?;
        let known = [
            TraceAction::Alloc,
            TraceAction::FreeRequested,
            TraceAction::FreeCompleted,
            TraceAction::SegmentAlloc,
            TraceAction::SegmentFree,
            TraceAction::SegmentMap,
            TraceAction::SegmentUnmap,
            TraceAction::Snapshot,
            TraceAction::OutOfMemory { device_free: self.device_free },
            TraceAction::Other, // as an action is written whose word is not kept
        ];
        let action = known.into_iter().find(|action| action.name() == &*word);
        if action.is_none() && word.len() <= LONGEST_OTHER {
            self.other.insert(0, (Arc::from("action"), Setting::Text(word)));
        }
        Ok(action.unwrap_or(TraceAction::Other))
    }
}
