use std::sync::Arc;

pub use accelerator_core::{BlockState, PoolKind, TraceAction};

/// The contents of the allocators of a process at one moment, and their history. PyTorch: the dictionary of
/// `torch.cuda.memory._snapshot`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySnapshot {
    /// The segments of all devices.
    pub segments: Vec<Segment>,
    /// Alias ranges, under the policy `compact`: addresses at which memory of segments is mapped a second time. Each
    /// has its blocks that are not free. Their bytes are [`Aliased`](BlockState::Aliased) in the segments.
    pub aliases: Vec<Segment>,
    /// The history of each device, by its number, the oldest entry first.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// Settings of the allocators under PyTorch's names, as they were at the end: `allocator_settings`.
    pub settings: Vec<(String, Setting)>,
    /// Marked times: `external_annotations`.
    pub annotations: Vec<Annotation>,
    /// Information for which PyTorch's file has no place, for the devices that were recorded here. Empty in a file of
    /// PyTorch's.
    pub notes: Vec<DeviceNotes>,
}

/// A value of `allocator_settings`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is what it is called")]
pub enum Setting {
    Flag(bool),
    Integer(i64),
    Real(f64),
    Text(Arc<str>),
    /// By size in MiB: `roundup_power2_divisions`.
    Table(Vec<(String, i64)>),
}

/// One driver allocation, or adjacent pages of an expandable segment. PyTorch: an element of `segments`.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The number of its device.
    pub device: u32,
    /// Where it starts.
    pub address: u64,
    /// Bytes reserved from the driver.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of blocks that are allocated or still in use by a stream.
    pub active_size: u64,
    /// Bytes that were requested, of the active blocks.
    pub requested_size: u64,
    /// The stream that its blocks serve: a number here, a handle in PyTorch.
    pub stream: u64,
    /// The pool that its blocks serve. PyTorch: `segment_type`.
    pub segment_type: PoolKind,
    /// The private pool that it belongs to; zeros: none.
    pub pool_id: PoolId,
    /// Whether it consists of pages of an expandable segment.
    pub is_expandable: bool,
    /// Where it was reserved from the driver, innermost call first.
    pub frames: Frames,
    /// Its blocks by address. Together they make up the segment.
    pub blocks: Vec<Block>,
}

/// PyTorch: `segment_pool_id`, `pool_id`.
pub type PoolId = (u64, u64);

/// One block of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes that were requested; for a free block, by the last request that it served.
    pub requested_size: u64,
    /// Its state.
    pub state: BlockState,
    /// Where it was allocated, innermost call first.
    pub frames: Frames,
}

/// One entry of a history. PyTorch: an element of `device_traces`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// What happened.
    pub action: TraceAction,
    /// The address of the block or segment. It has no meaning for a [`TraceAction::OutOfMemory`].
    pub address: u64,
    /// Bytes: of a block those that were requested, of a segment all.
    pub size: u64,
    /// The stream, as in [`Segment::stream`].
    pub stream: u64,
    /// Microseconds since 1970; 0: unknown.
    pub time_us: i64,
    /// Where it happened, innermost call first. For a free, where the block was allocated, unless frees have frames
    /// too.
    pub frames: Frames,
    /// The private pool.
    pub pool_id: PoolId,
    /// The text of the user.
    pub user_metadata: Arc<str>,
    /// The text of PyTorch's compiler.
    pub compile_context: Arc<str>,
    /// Other keys of the file, if their values are simple.
    pub other: Vec<(Arc<str>, Setting)>,
}

/// The calls on a stack, innermost first. All entries with the same stack share them.
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

/// A marked time. PyTorch: an element of `external_annotations`.
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

/// Information on one device for which PyTorch's file has no place. With it a history can be replayed exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceNotes {
    /// The device.
    pub device: u32,
    /// Its kind, such as `cuda`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// All its memory, in bytes.
    pub total_memory: u64,
    /// The settings at the start of the history, in the format of `PYTORCH_ALLOC_CONF`.
    pub settings: String,
    /// The memory fraction at the start of the history; 1: no limit.
    pub memory_fraction: f64,
    /// How many entries were dropped, since a history keeps a limited number.
    pub dropped: u64,
    /// The addresses of the segments, in the order in which they were created.
    pub segment_order: Vec<u64>,
    /// What else happened, in order.
    pub notes: Vec<Note>,
}

/// An event that PyTorch's histories do not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The index of the history entry before which it happened, from 0.
    pub before: u64,
    /// What happened.
    pub kind: NoteKind,
}

/// See [`Note`].
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
