use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

use crate::event::Point;

type Work = Box<dyn FnOnce() + Send>;

enum Job {
    Do(Work),
    Reach(Arc<Point>),
}

/// A stream: a thread that does its jobs in order, and ends when the stream is dropped and its jobs are done.
#[derive(Clone, Debug)]
pub struct SampleStream {
    jobs: Sender<Job>,
    pending: Arc<AtomicU64>,
}

impl SampleStream {
    pub(crate) fn start() -> DriverResult<Self> {
        let (jobs, received) = mpsc::channel();
        let pending = Arc::new(AtomicU64::new(0));
        let of_thread = Arc::clone(&pending);
        let work = move || {
            for job in received {
                match job {
                    Job::Do(work) => {
                        work();
                        of_thread.fetch_sub(1, Ordering::Release);
                    }
                    // Counted before it is reached: who has waited for the point finds the stream idle.
                    Job::Reach(point) => {
                        of_thread.fetch_sub(1, Ordering::Release);
                        point.reach();
                    }
                }
            }
        };
        let started = thread::Builder::new().name("sample stream".to_owned()).spawn(work);
        started.map(|_| Self { jobs, pending }).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(-1).into();
            DriverError::new(DriverErrorKind::Other, "thread::spawn", code, "the thread of the stream did not start")
        })
    }

    pub(crate) fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.send(Job::Do(Box::new(work)));
    }

    /// Submits a new point.
    pub(crate) fn point(&self) -> Arc<Point> {
        let point = Arc::new(Point::default());
        self.send(Job::Reach(Arc::clone(&point)));
        point
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    fn send(&self, job: Job) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let _ = self.jobs.send(job); // the thread receives for as long as there is a sender
    }
}
