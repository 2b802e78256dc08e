//! Counts of driver calls.

use std::sync::atomic::{AtomicU64, Ordering};

use accelerator_core::DriverError;

/// A call of the backend trait, of its virtual memory, of its memory between processes or of its graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of the same name")]
pub enum Call {
    MemoryInfo,
    Stream,
    Synchronize,
    IsIdle,
    Event,
    Record,
    Wait,
    IsComplete,
    WaitHost,
    ElapsedNs,
    Alloc,
    Dealloc,
    Copy,
    Fill,
    AllocHost,
    DeallocHost,
    IsCapturing,
    Reserve,
    Release,
    Create,
    Destroy,
    Map,
    Unmap,
    Export,
    Import,
    Close,
    ExportPages,
    ImportPages,
    Begin,
    End,
    CaptureOf,
    Mark,
    Precede,
    Launch,
    Upload,
}

impl Call {
    /// All calls, in order.
    pub const ALL: [Self; 35] = [
        Self::MemoryInfo,
        Self::Stream,
        Self::Synchronize,
        Self::IsIdle,
        Self::Event,
        Self::Record,
        Self::Wait,
        Self::IsComplete,
        Self::WaitHost,
        Self::ElapsedNs,
        Self::Alloc,
        Self::Dealloc,
        Self::Copy,
        Self::Fill,
        Self::AllocHost,
        Self::DeallocHost,
        Self::IsCapturing,
        Self::Reserve,
        Self::Release,
        Self::Create,
        Self::Destroy,
        Self::Map,
        Self::Unmap,
        Self::Export,
        Self::Import,
        Self::Close,
        Self::ExportPages,
        Self::ImportPages,
        Self::Begin,
        Self::End,
        Self::CaptureOf,
        Self::Mark,
        Self::Precede,
        Self::Launch,
        Self::Upload,
    ];

    /// The method's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryInfo => "memory_info",
            Self::Stream => "stream",
            Self::Synchronize => "synchronize",
            Self::IsIdle => "is_idle",
            Self::Event => "event",
            Self::Record => "record",
            Self::Wait => "wait",
            Self::IsComplete => "is_complete",
            Self::WaitHost => "wait_host",
            Self::ElapsedNs => "elapsed_ns",
            Self::Alloc => "alloc",
            Self::Dealloc => "dealloc",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::AllocHost => "alloc_host",
            Self::DeallocHost => "dealloc_host",
            Self::IsCapturing => "is_capturing",
            Self::Reserve => "reserve",
            Self::Release => "release",
            Self::Create => "create",
            Self::Destroy => "destroy",
            Self::Map => "map",
            Self::Unmap => "unmap",
            Self::Export => "export",
            Self::Import => "import",
            Self::Close => "close",
            Self::ExportPages => "export_pages",
            Self::ImportPages => "import_pages",
            Self::Begin => "begin",
            Self::End => "end",
            Self::CaptureOf => "capture_of",
            Self::Mark => "mark",
            Self::Precede => "precede",
            Self::Launch => "launch",
            Self::Upload => "upload",
        }
    }
}

/// How often each call was made.
#[derive(Debug)]
pub struct Calls([AtomicU64; Call::ALL.len()]);

impl Default for Calls {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Call::ALL.len()])
    }
}

impl Calls {
    pub(crate) fn count(&self, call: Call) {
        self.0[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often this call was made.
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize].load(Ordering::Relaxed)
    }

    /// How many calls were made in all.
    pub fn total(&self) -> u64 {
        Call::ALL.into_iter().map(|call| self.of(call)).sum()
    }

    /// The calls that were made, by name, with their number.
    pub fn made(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let mut calls = Call::ALL.map(|call| (call.name(), self.of(call)));
        calls.sort_unstable();
        calls.into_iter().filter(|(_, count)| *count > 0)
    }
}

/// The error of a call that was made to fail.
pub(crate) fn failure(call: Call, kind: accelerator_core::DriverErrorKind, name: &'static str) -> DriverError {
    DriverError::refused(kind, call.name(), name)
}
