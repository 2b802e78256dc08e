use std::sync::Arc;

pub use accelerator_core::{BlockState, PoolKind, TraceAction};

/// The contents of the allocators of a process at one moment, and their history. PyTorch: the dictionary that
/// `torch.cuda.memory._snapshot` returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySnapshot {
    /// The segments of all devices.
    pub segments: Vec<Segment>,
    /// Alias ranges, under the policy `compact`: addresses at which memory of segments is mapped a second time. Each
    /// contains its blocks that are not free. Their bytes are [`Aliased`](BlockState::Aliased) in the segments.
    pub aliases: Vec<Segment>,
    /// The history of each device, by its number, the oldest entry first.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings of the allocators at the end, under PyTorch's names. PyTorch: `allocator_settings`.
    pub settings: Vec<(String, Setting)>,
    /// Annotated times. PyTorch: `external_annotations`.
    pub annotations: Vec<Annotation>,
    /// Information for which PyTorch's format has no place, for devices that this library recorded. Empty in a file
    /// from PyTorch.
    pub notes: Vec<DeviceNotes>,
}

/// A value of `allocator_settings`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Setting {
    Flag(bool),
    Integer(i64),
    Real(f64),
    Text(Arc<str>),
    /// A table by size in MiB, as for `roundup_power2_divisions`.
    Table(Vec<(String, i64)>),
}

/// One driver allocation, or adjacent pages of an expandable segment. PyTorch: an element of `segments`.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The number of its device.
    pub device: u32,
    /// Its first address.
    pub address: u64,
    /// Bytes reserved from the driver.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of blocks that are allocated or still in use by a stream.
    pub active_size: u64,
    /// The requested bytes of active blocks.
    pub requested_size: u64,
    /// The stream that its blocks serve: a number here, a handle in PyTorch.
    pub stream: u64,
    /// The pool that its blocks serve. PyTorch: `segment_type`.
    pub segment_type: PoolKind,
    /// The private pool that it belongs to, or zeros for none.
    pub pool_id: PoolId,
    /// Whether it consists of pages of an expandable segment.
    pub is_expandable: bool,
    /// Whether its memory is paused: back with the driver, while its addresses and blocks stay. PyTorch has no
    /// counterpart.
    pub is_paused: bool,
    /// The calls that reserved it from the driver, the innermost first.
    pub frames: Frames,
    /// Its blocks, sorted by address. Together they make up the segment.
    pub blocks: Vec<Block>,
}

/// PyTorch: `segment_pool_id`, `pool_id`.
pub type PoolId = (u64, u64);

/// One block of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The requested bytes; for a free block, those of the last request that it served.
    pub requested_size: u64,
    /// Its state.
    pub state: BlockState,
    /// The calls that allocated it, the innermost first.
    pub frames: Frames,
}

/// One entry of a history. PyTorch: an element of `device_traces`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// What happened.
    pub action: TraceAction,
    /// The address of the block or segment. It has no meaning for a [`TraceAction::OutOfMemory`].
    pub address: u64,
    /// The size in bytes: for a block the requested bytes, for a segment its full size.
    pub size: u64,
    /// The stream, as in [`Segment::stream`].
    pub stream: u64,
    /// Microseconds since 1970, or 0 if unknown.
    pub time_us: i64,
    /// The calls that caused it, the innermost first. For a free without recorded calls, the calls that allocated the
    /// block.
    pub frames: Frames,
    /// The private pool.
    pub pool_id: PoolId,
    /// The metadata that the user set.
    pub user_metadata: Arc<str>,
    /// The context of PyTorch's compiler.
    pub compile_context: Arc<str>,
    /// Other keys in the file, if their values are simple.
    pub other: Vec<(Arc<str>, Setting)>,
}

/// The calls on a stack, the innermost first. All entries with the same stack share them.
pub type Frames = Arc<[Arc<Frame>]>;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: Arc<str>,
    /// The source file.
    pub filename: Arc<str>,
    /// The line.
    pub line: u32,
}

/// An annotated time. PyTorch: an element of `external_annotations`.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// `START` or `END`.
    pub stage: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The device.
    pub device: u32,
    /// Microseconds since 1970.
    pub time_us: i64,
}

/// Information on one device for which PyTorch's format has no place. It makes it possible to replay a history exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceNotes {
    /// The device.
    pub device: u32,
    /// Its kind, such as `cuda`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its total memory in bytes.
    pub total_memory: u64,
    /// The settings at the start of the history, in the format of `PYTORCH_ALLOC_CONF`.
    pub settings: String,
    /// The memory fraction at the start of the history; 1 means no limit.
    pub memory_fraction: f64,
    /// The number of entries that were dropped, since a history keeps only a limited number.
    pub dropped: u64,
    /// The addresses of the segments, in the order in which they were created.
    pub segment_order: Vec<u64>,
    /// The names of the private pools that have one, by number.
    pub pool_names: Vec<(PoolId, String)>,
    /// Other events, in order.
    pub notes: Vec<Note>,
}

/// An event that PyTorch's histories do not contain.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The index of the history entry before which it happened, counted from 0.
    pub before: u64,
    /// What happened.
    pub kind: NoteKind,
}

/// The event of a [`Note`].
#[derive(Clone, Debug, PartialEq)]
pub enum NoteKind {
    /// `empty_cache` was called.
    CacheEmptied,
    /// The driver refused a segment for lack of memory.
    Refused,
    /// The settings were changed to these.
    Settings(String),
    /// The memory fraction was changed to this.
    MemoryFraction(f64),
}
