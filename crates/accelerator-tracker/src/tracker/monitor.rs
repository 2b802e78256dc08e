use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerator::memory::DeviceMemory;
use accelerator::{Accelerator, Backend, Device, DeviceArg, OperatorObserver, observe_operators};

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
/// It can be fed in three ways, which can be combined. [`scope`](Self::scope) and [`operator`](Self::operator) say what
/// the program does. With [`Feed::Automatic`] it records everything that is submitted to the device. With the feature
/// `tracing`, spans of that crate are modules and operators.
///
/// While the tracker is not running it records nothing, and each call costs the check of a flag, so the calls can stay
/// in a program. Only modules, from calls or spans, belong to threads and not to a tracker: entering one always costs
/// making its path.
///
/// A clone is the same tracker, for other threads. Dropping the last clone ends a run.
#[derive(Clone)]
pub struct MemoryTracker(Arc<Shared>);

/// What is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// What the program says, by calls and spans.
    #[default]
    Explicit,
    /// In addition, what is submitted to the device: the operators `allocate`, `copy`, `fill` and `launch`. A launch
    /// may have a [name](accelerator::Operator::named) of its own.
    Automatic,
}

struct Shared {
    source: Box<dyn Source>,
    /// Locked during a start or a stop. `None`: the tracker is not running.
    run: Mutex<Option<Run>>,
    /// The same as in `run`, to be read without a lock.
    is_running: AtomicBool,
    recording: Mutex<Recording>,
}

struct Run {
    /// `None`: nothing is recorded automatically.
    _observer: Option<OperatorObserver>,
}

impl MemoryTracker {
    /// A tracker of this device, which is opened.
    ///
    /// # Errors
    /// As [`DeviceArg`] says; errors of opening the device.
    pub fn new<'a>(device: impl Into<DeviceArg<'a>>) -> accelerator::Result<Self> {
        DeviceMemory::open(device).map(Self::with)
    }

    /// A tracker of an opened device of one backend.
    pub fn of<B: Backend>(accelerator: &'static Accelerator<B>) -> Self {
        Self::with(accelerator)
    }

    fn with(source: impl Source + 'static) -> Self {
        let recording = Mutex::new(Recording::new(TrackerStats::default(), 0));
        let (source, run, is_running) = (Box::new(source), Mutex::new(None), AtomicBool::new(false));
        Self(Arc::new(Shared { source, run, is_running, recording }))
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.source.device()
    }

    /// Starts a run: forgets what was recorded or loaded, releases the cached memory of the device, and records from
    /// now on. PyTorch: `MemoryTracker.start_monitor`, which takes the module whose submodules it records.
    ///
    /// # Errors
    /// [`TrackerError::Running`]; [`TrackerError::Accelerator`] if the cache cannot be emptied. Nothing has changed
    /// then.
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

    /// Ends the run. What was recorded stays. PyTorch: `MemoryTracker.stop`.
    ///
    /// # Errors
    /// [`TrackerError::NotRunning`] if no run was started, or it was stopped before. Nothing has changed then.
    pub fn stop(&self) -> Result<(), TrackerError> {
        let mut run = lock(&self.0.run);
        let ended = run.take().ok_or(TrackerError::NotRunning)?;
        self.0.end();
        // Still under the lock, so that a run that another thread starts has the only observer.
        drop(ended);
        Ok(())
    }

    /// Whether a run is going on.
    pub fn is_running(&self) -> bool {
        self.0.is_running.load(Ordering::Relaxed)
    }

    /// Enters a module on this thread until the guard is dropped, for all trackers. See [`scope`](scope()).
    pub fn scope(&self, name: &str) -> Scope {
        scope(name)
    }

    /// Enters a module by its full name, such as `blocks.0.fc1.forward`, whatever module this thread is in. See
    /// [`scope_absolute`](scope_absolute()).
    pub fn scope_absolute(&self, name: &str) -> Scope {
        scope_absolute(name)
    }

    /// Records an operator of this name, in the module that this thread is in. Call it after the operator's work.
    pub fn operator(&self, name: &str) {
        if self.is_running() {
            self.0.operator(current_scope(), name);
        }
    }

    /// Sets a marker of this name at this moment.
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

    /// What was recorded or loaded: the last run, also while it is going on.
    pub fn stats(&self) -> TrackerStats {
        self.0.stats()
    }

    /// The 20 operators that took the most memory. PyTorch: `MemoryTracker.summary()`.
    pub fn summary(&self) -> Summary {
        self.stats().summary()
    }

    /// The [`summary`](Self::summary) with at most `top` operators. PyTorch: `MemoryTracker.summary(top)`.
    pub fn summary_top(&self, top: usize) -> Summary {
        self.stats().summary_top(top)
    }

    /// Writes what was recorded to a file, as [`TrackerStats::save`] does. PyTorch: `MemoryTracker.save_stats`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        self.stats().save(path)
    }

    /// Writes what was recorded to a file that PyTorch's tracker reads, as [`TrackerStats::save_pytorch`] does.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn save_pytorch(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        self.stats().save_pytorch(path)
    }

    /// Replaces what was recorded by the contents of a file, as [`TrackerStats::load`] reads it. PyTorch:
    /// `MemoryTracker.load`.
    ///
    /// # Errors
    /// [`TrackerError::Running`], [`TrackerError::File`]. Nothing has changed then.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<(), TrackerError> {
        let run = lock(&self.0.run);
        if run.is_some() {
            return Err(TrackerError::Running);
        }
        let loaded = Recording::new(TrackerStats::load(path)?, 0);
        *lock(&self.0.recording) = loaded;
        Ok(())
    }

    /// Records an operator in a module other than this thread's.
    #[cfg(feature = "tracing")]
    pub(crate) fn operator_in(&self, module: Option<Arc<str>>, name: &str) {
        if self.is_running() {
            self.0.operator(module, name);
        }
    }

    /// Records what is submitted to the device. The observer does not keep the tracker alive.
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
            // Under the lock, so that the order of operators is that of their statistics.
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

/// Locks, even after a panic elsewhere: no user code runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
