//! Streams and events: threads that do jobs in order, and points between the jobs.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use accelerator_core::backend_kit::{EventCapture, lock};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

/// The jobs of a stream.
enum Job {
    /// Do some work.
    Do(Box<dyn FnOnce() + Send>),
    /// Complete an event. This needs no memory besides the record.
    Reach(Recording),
}

/// How many streams of the host a process may have. Each is a thread, which takes four memory mappings: its stack, the
/// stack of its signal handlers, and a guard page for each. Linux allows a process 65,530 mappings, and Rust aborts if
/// a thread gets no stack for its signal handlers. So this leaves three quarters of them to other uses.
const MAX_THREADS: u32 = 4096;

/// The number of streams' threads that have not ended.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// A stream: a thread that does its jobs in order.
#[derive(Clone, Debug)]
pub struct HostStream {
    jobs: Sender<Job>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    id: u64,
    /// The number of jobs that were submitted and are not done.
    pending: AtomicU64,
    /// Whether a job has panicked since the last synchronize.
    panicked: AtomicBool,
}

impl HostStream {
    /// Starts the thread. It ends when the stream and its clones are gone and its jobs are done.
    ///
    /// # Errors
    /// An error if there are too many streams; otherwise the system's error.
    pub(crate) fn start(name: String) -> DriverResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let counted = Counted::new()?;
        let (jobs, to_do) = mpsc::channel();
        let (id, pending, panicked) = (NEXT.fetch_add(1, Ordering::Relaxed), AtomicU64::new(0), AtomicBool::new(false));
        let stream = Self { jobs, state: Arc::new(State { id, pending, panicked }) };
        let state = Arc::clone(&stream.state);
        let started = thread::Builder::new().name(name).spawn(move || {
            let _counted = counted;
            to_do.iter().for_each(|job| match job {
                Job::Do(work) => work(),
                Job::Reach(recording) => {
                    // Decremented first, so that a thread that has waited for the event finds the stream idle.
                    state.pending.fetch_sub(1, Ordering::Release);
                    let _ = recording.set(Instant::now());
                }
            });
        });
        started.map(|_| stream).map_err(|error| {
            let (code, why) = (error.raw_os_error().unwrap_or(-1), "the thread of the stream could not be started");
            DriverError::new(DriverErrorKind::Other, "thread::spawn", code.into(), why)
        })
    }

    /// Returns the number of the stream, which no other has.
    pub(crate) fn id(&self) -> u64 {
        self.state.id
    }

    pub(crate) fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.submit_all([work]);
    }

    /// Submits several pieces of work, between which no other runs on this stream.
    pub(crate) fn submit_all<W: FnOnce()>(&self, work: impl IntoIterator<Item = W> + Send + 'static) {
        let state = Arc::clone(&self.state);
        state.pending.fetch_add(1, Ordering::Relaxed);
        self.push(move || {
            for work in work {
                if panics(work) {
                    state.panicked.store(true, Ordering::Relaxed);
                }
            }
            state.pending.fetch_sub(1, Ordering::Release);
        });
    }

    /// Returns a recording that is completed after the work that was submitted so far.
    pub(crate) fn record(&self) -> Recording {
        let recording = Recording::default();
        self.state.pending.fetch_add(1, Ordering::Relaxed);
        self.send(Job::Reach(Arc::clone(&recording)));
        recording
    }

    pub(crate) fn wait_for(&self, recording: Recording) {
        self.submit(move || _ = recording.wait());
    }

    /// Drops a value after the work that was submitted so far. This does not count as work: the stream can be idle
    /// meanwhile.
    pub(crate) fn drop_later(&self, thing: impl Send + 'static) {
        self.push(move || drop(thing));
    }

    fn push(&self, work: impl FnOnce() + Send + 'static) {
        self.send(Job::Do(Box::new(work)));
    }

    fn send(&self, job: Job) {
        // This fails only if the thread has ended, and the thread outlives this sender.
        let _ = self.jobs.send(job);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state.pending.load(Ordering::Acquire) == 0
    }

    /// Waits for everything that was submitted so far. If a job has panicked, fails once.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        self.record().wait();
        match self.state.panicked.swap(false, Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let why = "a kernel panicked; its message is on standard error";
                Err(DriverError::refused(DriverErrorKind::Other, "launch", why))
            }
        }
    }
}

/// Runs code of the program. Returns whether it panicked.
pub(crate) fn panics(code: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(code)).map_err(mem::forget).is_err() // dropping what it says could panic again
}

/// A thread that is counted in [`THREADS`].
struct Counted;

impl Counted {
    fn new() -> DriverResult<Self> {
        if THREADS.fetch_add(1, Ordering::Relaxed) < MAX_THREADS {
            return Ok(Self);
        }
        drop(Self); // uncounts it
        let why = "this process already has 4,096 host streams, each of which is a thread: create fewer streams, or \
                   open fewer devices";
        Err(DriverError::refused(DriverErrorKind::Other, "stream", why))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An event: completed when the thread of the stream reaches it.
#[derive(Debug, Default)]
pub struct HostEvent(Mutex<Option<Record>>);

/// One record of an event.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Submitted(Recording),
    Captured(EventCapture),
}

/// When the thread of the stream reached a point in the work.
pub(crate) type Recording = Arc<OnceLock<Instant>>;

impl HostEvent {
    pub(crate) fn set(&self, record: Record) {
        *lock(&self.0) = Some(record);
    }

    /// Returns the last record, if there is one. Whoever waits for it is not affected by later ones.
    pub(crate) fn last(&self) -> Option<Record> {
        lock(&self.0).clone()
    }

    /// Returns whether the last record is completed, or was never made.
    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        // Programs poll events, so this counts no reference to the record.
        match &*lock(&self.0) {
            None => Ok(true),
            Some(Record::Submitted(recording)) => Ok(recording.get().is_some()),
            Some(Record::Captured(event)) => Err(event.unanswered("is_complete")),
        }
    }

    /// Returns the last record for a query, which fails after a record in a capture.
    pub(crate) fn recording(&self, call: &'static str) -> DriverResult<Option<Recording>> {
        match self.last() {
            None => Ok(None),
            Some(Record::Submitted(recording)) => Ok(Some(recording)),
            Some(Record::Captured(event)) => Err(event.unanswered(call)),
        }
    }

    /// Returns the address of its last record, or 0 if there is none outside of captures.
    pub(crate) fn id(&self) -> u64 {
        match self.last() {
            Some(Record::Submitted(recording)) => Arc::as_ptr(&recording).addr() as u64,
            _ => 0,
        }
    }
}
