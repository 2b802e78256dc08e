use std::sync::Arc;

use accelerator_core::{MemPoolId, SegmentSnapshot, Snapshot};

use crate::snapshot::{self, BlockState, PoolKind};

/// The segments of a device at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The name of the moment, such as `peak allocated` or `the end`.
    pub name: String,
    /// The index of the last call before it.
    pub call: usize,
    /// The segments.
    pub segments: Vec<MapSegment>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSegment {
    /// The pool that it serves.
    pub pool: PoolKind,
    /// The private pool that it belongs to, or the default pool.
    pub mem_pool: MemPoolId,
    /// The stream that it serves.
    pub stream: u64,
    /// Its first address.
    pub address: u64,
    /// Whether it is an alias: an address range at which memory of other segments is mapped a second time. It contains
    /// only blocks in use. Their memory is [`BlockState::Aliased`] in those segments.
    pub is_alias: bool,
    /// Whether its memory is paused: back with the driver, while its addresses and blocks stay.
    pub is_paused: bool,
    /// Its blocks, sorted by address. Together they make up the segment.
    pub blocks: Vec<MapBlock>,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBlock {
    /// Its size in bytes.
    pub size: u64,
    /// Its state.
    pub state: BlockState,
    /// The operator, module or function that allocated it, or empty if unknown.
    pub scope: Arc<str>,
}

impl MapSegment {
    /// Returns the bytes of its blocks. They are reserved from the driver, unless this [is an alias](Self::is_alias) or
    /// [paused](Self::is_paused).
    pub fn size(&self) -> u64 {
        self.blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.size))
    }

    /// Returns the bytes of its blocks in this state.
    pub fn bytes(&self, state: BlockState) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.state == state);
        blocks.fold(0, |sum: u64, block| sum.saturating_add(block.size))
    }

    /// Returns the bytes of its blocks in this state, without paused ones.
    pub fn present(&self, state: BlockState) -> u64 {
        if self.is_paused { 0 } else { self.bytes(state) }
    }

    /// Returns the bytes that are paused.
    pub fn paused(&self) -> u64 {
        if self.is_paused { self.size() } else { 0 }
    }

    /// Returns the segments of an allocator. `scope` returns what allocated the block at an address.
    pub fn of(snapshot: &Snapshot, scope: impl Fn(u64) -> Arc<str>) -> Vec<Self> {
        let segment = |segment: &SegmentSnapshot, is_alias| {
            let blocks = segment.blocks.iter().map(|block| {
                let scope = if block.state.is_active() { scope(block.address) } else { Arc::default() };
                MapBlock { size: block.size, state: block.state, scope }
            });
            let SegmentSnapshot { pool, mem_pool, stream, address, paused: is_paused, .. } = *segment;
            let (stream, blocks) = (stream.get().into(), blocks.collect());
            Self { pool, mem_pool, stream, address, is_alias, is_paused, blocks }
        };
        let segments = snapshot.segments.iter().map(|own| segment(own, false));
        segments.chain(snapshot.aliases.iter().map(|alias| segment(alias, true))).collect()
    }

    pub(super) fn new(segment: &snapshot::Segment, is_alias: bool) -> Self {
        let blocks = segment.blocks.iter().map(|block| {
            let scope = if block.state.is_active() { scope(&block.frames) } else { Arc::default() };
            MapBlock { size: block.size, state: block.state, scope }
        });
        let snapshot::Segment { segment_type: pool, pool_id: (graph, user), stream, address, is_paused, .. } = *segment;
        let (mem_pool, blocks) = (MemPoolId::new(graph, user), blocks.collect());
        Self { pool, mem_pool, stream, address, is_alias, is_paused, blocks }
    }
}

/// Returns what allocated a block: the scope of a tracker, if there was one, or the innermost call.
pub(super) fn scope(frames: &snapshot::Frames) -> Arc<str> {
    if let Some(scope) = frames.last().filter(|frame| &*frame.filename == "scope") {
        return scope.name.clone();
    }
    let Some(frame) = frames.first() else { return Arc::default() };
    let file = frame.filename.rsplit(['/', '\\']).next().unwrap_or_default();
    match file {
        "" | "??" => frame.name.clone(),
        file => format!("{}, {file}:{}", frame.name, frame.line).into(),
    }
}
