use std::sync::Arc;

pub use accelerator_core::{BlockState, PoolKind, TraceAction};

/// What the allocators of a process held at one moment, and what had happened in them before. PyTorch: the dictionary of
/// `torch.cuda.memory._snapshot`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySnapshot {
    /// The segments of all devices.
    pub segments: Vec<Segment>,
    /// Under the policy `compact`, addresses where memory of segments shows once more, each with its blocks that are not free:
    /// their bytes are [`Aliased`](BlockState::Aliased) in the segments.
    pub aliases: Vec<Segment>,
    /// The history of each device, by its number, the oldest entry first.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// Settings of the allocators under PyTorch's names: `allocator_settings`. As they were at the end.
    pub settings: Vec<(String, Setting)>,
    /// Marked times: `external_annotations`.
    pub annotations: Vec<Annotation>,
    /// What PyTorch's file has no place for, of the devices that were recorded here; empty in a file of PyTorch's.
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

/// One driver allocation, or pages of an expandable segment that lie side by side. PyTorch: an element of `segments`.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The number of its device.
    pub device: u32,
    /// Where it starts.
    pub address: u64,
    /// Bytes from the driver.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of blocks allocated or still in use by a stream.
    pub active_size: u64,
    /// Bytes that were asked for, of the active blocks.
    pub requested_size: u64,
    /// The stream that its blocks serve: a number here, PyTorch's is a handle.
    pub stream: u64,
    /// The pool that its blocks serve. PyTorch: `segment_type`.
    pub segment_type: PoolKind,
    /// The private pool that it belongs to; zeros: none.
    pub pool_id: PoolId,
    /// Whether it is pages of an expandable segment.
    pub is_expandable: bool,
    /// Where it was taken from the driver, innermost first.
    pub frames: Frames,
    /// Its blocks by address; together they are the segment.
    pub blocks: Vec<Block>,
}

/// PyTorch: `segment_pool_id`, `pool_id`.
pub type PoolId = (u64, u64);

/// One block of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Bytes of it.
    pub size: u64,
    /// Bytes that were asked for; of a free block, what the last request that it served asked for.
    pub requested_size: u64,
    /// Its state.
    pub state: BlockState,
    /// Where it was allocated, innermost first.
    pub frames: Frames,
}

/// One entry of a history. PyTorch: an element of `device_traces`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// What happened.
    pub action: TraceAction,
    /// The block or segment; of an [`TraceAction::OutOfMemory`] nothing.
    pub address: u64,
    /// Bytes: of a block those that were asked for, of a segment all.
    pub size: u64,
    /// The stream, as in [`Segment::stream`].
    pub stream: u64,
    /// Microseconds since 1970; 0: not known.
    pub time_us: i64,
    /// Where it happened, innermost first; of a free, where the block was allocated, unless frees have frames too.
    pub frames: Frames,
    /// The private pool.
    pub pool_id: PoolId,
    /// Text of the user's.
    pub user_metadata: Arc<str>,
    /// PyTorch's compiler.
    pub compile_context: Arc<str>,
    /// Keys of the file that are none of these, as far as they are plain values.
    pub other: Vec<(Arc<str>, Setting)>,
}

/// Calls on the way to one place, innermost first. Shared by all entries that have the same.
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

/// What PyTorch's file has no place for, of one device: with it a history can be replayed exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceNotes {
    /// The device.
    pub device: u32,
    /// Its kind, as `cuda`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// All its memory, in bytes.
    pub total_memory: u64,
    /// The settings when the history starts, as in `PYTORCH_ALLOC_CONF`.
    pub settings: String,
    /// The memory fraction when the history starts; 1: no limit.
    pub memory_fraction: f64,
    /// Entries that had to go, since a history keeps only so many.
    pub dropped: u64,
    /// The addresses of the segments in the order in which they were made.
    pub segment_order: Vec<u64>,
    /// What else happened, in order.
    pub notes: Vec<Note>,
}

/// Something that PyTorch's histories do not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// It happened ahead of the entry of the history with this place, from 0.
    pub before: u64,
    /// What it was.
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
