//! The recorded history. Its contexts are PyTorch's own objects, of which only the address is known here.
#![allow(unsafe_code)] // exported functions

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use accelerator_core::{ContextsOf, HistoryAction, HistoryContext, HistoryEntry, Recording, TraceAction};

use crate::boundary::status;
use crate::devices::{self, Device, handle};
use crate::pools::PoolNumber;

/// Captures the context of the calling thread; null if there is none.
type Capture = extern "C" fn() -> *mut c_void;
type Release = extern "C" fn(*mut c_void);

/// PyTorch's functions, which are the same for all recordings.
static FUNCTIONS: OnceLock<(Capture, Release)> = OnceLock::new();

/// A context of PyTorch's, which is released with it.
struct Context(*mut c_void);

// SAFETY: PyTorch passes such contexts from thread to thread itself.
unsafe impl Send for Context {}
// SAFETY: As for `Send`.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some((_, release)) = FUNCTIONS.get() {
            release(self.0);
        }
    }
}

fn capture() -> Option<HistoryContext> {
    let (capture, _) = FUNCTIONS.get()?;
    let context = capture();
    (!context.is_null()).then(|| Arc::new(Context(context)) as HistoryContext)
}

/// Returns what PyTorch's function returned for this context; null for none.
pub(crate) fn context(context: Option<&HistoryContext>) -> *mut c_void {
    context.and_then(|context| context.downcast_ref::<Context>()).map_or(ptr::null_mut(), |context| context.0)
}

/// Records the histories of all devices from now on, also of those that are not in use yet, or no longer if `on` is
/// false. `when` is PyTorch's `RecordContext`: 0 for no contexts, 1 for those of live blocks, 2 also for allocations, 3
/// also for frees. With `clear`, what is recorded so far is discarded.
///
/// # Safety
/// `capture` may be called from any thread, and `release` with what it returned, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_record_history(
    on: bool,
    max_entries: usize,
    when: c_int,
    clear: bool,
    capture_context: Capture,
    release: Release,
) -> c_int {
    status(|| {
        FUNCTIONS.get_or_init(|| (capture_context, release));
        let contexts = match when {
            3 => ContextsOf::All,
            2 => ContextsOf::Alloc,
            _ => ContextsOf::State,
        };
        let recording = Recording { max_entries, contexts, capture: (when > 0).then_some(capture) };
        devices::record(on.then_some(recording), clear);
        Ok(())
    })
}

/// An entry of the history.
#[repr(C)]
pub struct Entry {
    /// An address; for `OOM` the free memory of the device, as in PyTorch.
    address: u64,
    size: u64,
    stream: usize,
    /// Nanoseconds since 1970.
    time: u64,
    pool: PoolNumber,
    /// As for a [segment](crate::snapshot::Segment).
    context: *mut c_void,
    /// PyTorch's `TraceEntry::Action`.
    action: c_int,
}

/// Returns an entry as PyTorch has it; `None` for one that PyTorch does not have.
pub(crate) fn entry(device: Device, entry: &HistoryEntry) -> Option<Entry> {
    let HistoryAction::Trace(trace) = &entry.action else { return None };
    let (action, address) = match trace {
        TraceAction::Alloc => (0, entry.address),
        TraceAction::FreeRequested => (1, entry.address),
        TraceAction::FreeCompleted => (2, entry.address),
        TraceAction::SegmentAlloc => (3, entry.address),
        TraceAction::SegmentFree => (4, entry.address),
        TraceAction::SegmentMap => (5, entry.address),
        TraceAction::SegmentUnmap => (6, entry.address),
        TraceAction::Snapshot => (7, entry.address),
        TraceAction::OutOfMemory { device_free } => (8, *device_free),
        TraceAction::Other => return None,
    };
    Some(Entry {
        address,
        size: entry.size,
        stream: handle(device, entry.stream),
        time: entry.time,
        pool: PoolNumber::of(entry.mem_pool),
        context: context(entry.context.as_ref()),
        action,
    })
}
