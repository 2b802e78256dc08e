use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use accelerator::memory::DeviceMemory;
use accelerator::{Accelerator, Backend, Device, DeviceArg, OperatorObserver, observe_operators};
use accelerator_core::backend_kit::lock;

use super::error::TrackerError;
use super::recording::Recording;
use super::scope::{Scope, current_scope, scope, scope_absolute};
use super::source::Source;
use super::stats::{FORWARD_BACKWARD_BOUNDARY, FORWARD_START, MemoryUse, TrackerStats};
use super::summary::Summary;
use crate::file::FileError;

/// Records how much of a device's memory is in use after each operator of a program. PyTorch:
/// `torch.distributed._tools.memory_tracker.MemoryTracker`.
///
/// There are three ways to feed it, which can be combined. With [`scope`](Self::scope) and [`operator`](Self::operator)
/// the program reports its modules and operators. With [`Feed::Automatic`] the tracker records everything that is
/// submitted to the device. With the feature `tracing`, spans of that crate are modules and operators.
///
/// While the tracker is not running, it records nothing, and each call only checks a flag. So the calls can stay in a
/// program. Modules, from calls or spans, are the exception: they belong to threads and not to a tracker, so entering a
/// module always builds its path.
///
/// A clone is the same tracker, for other threads. Dropping the last clone ends a run.
#[derive(Clone)]
pub struct MemoryTracker(Arc<Shared>);

/// What a tracker records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// Only what the program reports with calls and spans.
    #[default]
    Explicit,
    /// In addition, everything that is submitted to the device: the operators `allocate`, `copy`, `fill` and `launch`.
    /// A launch may have its own [name](accelerator::Operator::named).
    Automatic,
}

struct Shared {
    source: Box<dyn Source>,
    /// The run, or `None` if the tracker is not running. Locked during a start or a stop.
    run: Mutex<Option<Run>>,
    /// Whether there is a run. Can be read without a lock.
    is_running: AtomicBool,
    recording: Mutex<Recording>,
}

struct Run {
    /// The observer for automatic recording, if any.
    _observer: Option<OperatorObserver>,
}

impl MemoryTracker {
    /// Creates a tracker for this device, and opens the device.
    ///
    /// # Errors
    /// Errors that [`DeviceArg`] describes; errors of opening the device.
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> accelerator::Result<Self> {
        DeviceMemory::open(device).map(Self::with)
    }

    /// Creates a tracker for an open device of one backend.
    pub fn of<B: Backend>(accelerator: &'static Accelerator<B>) -> Self {
        Self::with(accelerator)
    }

    fn with(source: impl Source + 'static) -> Self {
        let recording = Mutex::new(Recording::new(TrackerStats::default(), 0));
        let (source, run, is_running) = (Box::new(source), Mutex::new(None), AtomicBool::new(false));
        Self(Arc::new(Shared { source, run, is_running, recording }))
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.0.source.device()
    }

    /// Starts a run: discards recorded or loaded data, releases the cached memory of the device, and starts to record.
    /// PyTorch: `MemoryTracker.start_monitor`, which accepts the module whose submodules it records.
    ///
    /// # Errors
    /// [`TrackerError::Running`]; [`TrackerError::Accelerator`] if the cache cannot be emptied. Nothing has then
    /// changed.
    pub fn start_monitor(&self, feed: Feed) -> Result<(), TrackerError> {
        let mut run = lock(&self.0.run);
        if run.is_some() {
            return Err(TrackerError::Running);
        }
        self.0.source.empty_cache()?;
        self.0.begin();
        *run = Some(Run { _observer: (feed == Feed::Automatic).then(|| self.observe()) });
        Ok(())
    }

    /// Ends the run. The recording stays. PyTorch: `MemoryTracker.stop`.
    ///
    /// # Errors
    /// [`TrackerError::NotRunning`] if no run was started, or if it was already stopped. Nothing has then changed.
    pub fn stop(&self) -> Result<(), TrackerError> {
        let mut run = lock(&self.0.run);
        let ended = run.take().ok_or(TrackerError::NotRunning)?;
        self.0.end();
        // Dropped under the lock, so that a run that another thread starts has the only observer.
        drop(ended);
        Ok(())
    }

    /// Returns whether a run is in progress.
    pub fn is_running(&self) -> bool {
        self.0.is_running.load(Ordering::Relaxed)
    }

    /// Enters a module on this thread, for all trackers, until the guard is dropped. See [`scope`](scope()).
    pub fn scope(&self, name: &str) -> Scope {
        scope(name)
    }

    /// Enters a module by its full name, such as `blocks.0.fc1.forward`, regardless of the current module of this
    /// thread. See [`scope_absolute`](scope_absolute()).
    pub fn scope_absolute(&self, name: &str) -> Scope {
        scope_absolute(name)
    }

    /// Records an operator with this name in the current module of this thread. Call it after the operator's work.
    pub fn operator(&self, name: &str) {
        if self.is_running() {
            self.0.operator(current_scope(), name);
        }
    }

    /// Sets a marker with this name at the current position.
    pub fn marker(&self, name: &str) {
        if self.is_running() {
            self.0.marker(name);
        }
    }

    /// Marks the start of the forward pass: `fw_start`.
    pub fn forward_start(&self) {
        self.marker(FORWARD_START);
    }

    /// Marks the end of the forward pass, which is the start of the backward pass: `fw_bw_boundary`.
    pub fn forward_backward_boundary(&self) {
        self.marker(FORWARD_BACKWARD_BOUNDARY);
    }

    /// Returns the recorded or loaded data: the last run, which may be in progress.
    pub fn stats(&self) -> TrackerStats {
        self.0.stats()
    }

    /// Returns the 20 operators that used the most memory. PyTorch: `MemoryTracker.summary()`.
    pub fn summary(&self) -> Summary {
        self.stats().summary()
    }

    /// Returns the [`summary`](Self::summary) with at most `top` operators. PyTorch: `MemoryTracker.summary(top)`.
    pub fn summary_top(&self, top: usize) -> Summary {
        self.stats().summary_top(top)
    }

    /// Writes the recorded data to a file with [`TrackerStats::save`]. PyTorch: `MemoryTracker.save_stats`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        self.stats().save(path)
    }

    /// Writes the recorded data to a file that PyTorch's tracker can read, with [`TrackerStats::save_pytorch`].
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_pytorch(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        self.stats().save_pytorch(path)
    }

    /// Replaces the recorded data with the contents of a file, using [`TrackerStats::load`]. PyTorch:
    /// `MemoryTracker.load`.
    ///
    /// # Errors
    /// [`TrackerError::Running`], [`TrackerError::File`]. Nothing has then changed.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<(), TrackerError> {
        let run = lock(&self.0.run);
        if run.is_some() {
            return Err(TrackerError::Running);
        }
        let loaded = Recording::new(TrackerStats::load(path)?, 0);
        *lock(&self.0.recording) = loaded;
        Ok(())
    }

    /// Records an operator in any module, not only in this thread's module.
    #[cfg(feature = "tracing")]
    pub(crate) fn operator_in(&self, module: Option<Arc<str>>, name: &str) {
        if self.is_running() {
            self.0.operator(module, name);
        }
    }

    /// Records everything that is submitted to the device. The observer does not keep the tracker alive.
    fn observe(&self) -> OperatorObserver {
        let (tracker, device) = (Arc::downgrade(&self.0), self.device());
        observe_operators(move |operator| {
            if operator.device == device
                && let Some(tracker) = tracker.upgrade()
            {
                tracker.operator(current_scope(), operator.name);
            }
        })
    }
}

impl Shared {
    fn begin(&self) {
        let statistics = self.source.statistics();
        let before = TrackerStats {
            device: Some(self.source.device().to_string()),
            total_memory: Some(self.source.total_memory()),
            start: Some((&statistics).into()),
            ..TrackerStats::default()
        };
        let mut recording = lock(&self.recording);
        *recording = Recording::new(before, statistics.num_alloc_retries.unsigned_abs());
        self.is_running.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        let mut recording = lock(&self.recording);
        recording.before.num_alloc_retries = recording.retries(self.source.retries());
        self.is_running.store(false, Ordering::Relaxed);
    }

    fn operator(&self, module: Option<Arc<str>>, name: &str) {
        let mut recording = lock(&self.recording);
        if self.is_running.load(Ordering::Relaxed) {
            // Read under the lock, so that operators are in the order of their statistics.
            let memory = MemoryUse::from(&self.source.statistics());
            recording.operator(module, name, memory);
        }
    }

    fn marker(&self, name: &str) {
        let mut recording = lock(&self.recording);
        if self.is_running.load(Ordering::Relaxed) {
            recording.marker(name);
        }
    }

    fn stats(&self) -> TrackerStats {
        let recording = lock(&self.recording);
        let mut stats = recording.stats();
        if self.is_running.load(Ordering::Relaxed) {
            stats.num_alloc_retries = recording.retries(self.source.retries());
        }
        stats
    }
}

impl fmt::Debug for MemoryTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_running() { "running" } else { "not running" };
        write!(f, "MemoryTracker {{ {}, {state} }}", self.device())
    }
}
