use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use accelerator_core::backend_kit::{lock, wait_while};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

use crate::event::Point;

/// A stream: a thread that does its jobs in order. It ends when the stream has been dropped and its jobs are done.
#[derive(Debug)]
pub struct SampleStream {
    jobs: Sender<Job>,
    progress: Arc<Progress>,
}

type Job = Box<dyn FnOnce() + Send>;

/// How far a stream is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The numbers of jobs that were submitted, and that are done.
    jobs: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Progress {
    fn submit(&self) {
        lock(&self.jobs).0 += 1;
    }

    fn complete(&self) {
        lock(&self.jobs).1 += 1;
        self.changed.notify_all();
    }

    fn is_idle(&self) -> bool {
        let (submitted, done) = *lock(&self.jobs);
        submitted == done
    }

    /// Waits for everything submitted so far.
    pub(crate) fn wait(&self) {
        let jobs = lock(&self.jobs);
        let (submitted, _) = *jobs;
        drop(wait_while(&self.changed, jobs, |(_, done)| *done < submitted));
    }
}

impl SampleStream {
    /// Starts the thread, which keeps the progress until it ends.
    pub(crate) fn start(progress: Arc<Progress>) -> DriverResult<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let of_thread = Arc::clone(&progress);
        let work = move || {
            for job in received {
                job();
                of_thread.complete();
            }
        };
        let started = thread::Builder::new().name("sample stream".to_owned()).spawn(work);
        started.map(|_| Self { jobs, progress }).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(-1).into();
            DriverError::new(DriverErrorKind::Other, "thread::spawn", code, "the thread of the stream did not start")
        })
    }

    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.progress.submit();
        let _ = self.jobs.send(Box::new(job)); // the thread receives for as long as there is a sender
    }

    /// Submits a new point.
    pub(crate) fn point(&self) -> Arc<Point> {
        let point = Arc::new(Point::default());
        let reached = Arc::clone(&point);
        self.submit(move || reached.reach());
        point
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.progress.is_idle()
    }

    pub(crate) fn wait(&self) {
        self.progress.wait();
    }
}
