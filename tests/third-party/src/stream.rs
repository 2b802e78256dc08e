use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};

use crate::event::Point;

/// A stream: a thread that does its jobs in order. It ends when the stream has been dropped and its jobs are done.
#[derive(Debug)]
pub struct SampleStream(pub(crate) Arc<Queue>);

/// The jobs of a stream.
#[derive(Debug)]
pub(crate) struct Queue {
    jobs: Sender<Job>,
    pending: Arc<AtomicU64>,
}

enum Job {
    Do(Box<dyn FnOnce() + Send>),
    Reach(Arc<Point>),
}

impl Queue {
    pub(crate) fn start() -> DriverResult<Self> {
        let (jobs, received) = mpsc::channel();
        let queue = Self { jobs, pending: Arc::default() };
        let pending = Arc::clone(&queue.pending);
        let done = move || pending.fetch_sub(1, Ordering::Release);
        let work = move || {
            for job in received {
                match job {
                    Job::Do(work) => {
                        work();
                        done();
                    }
                    // First counted, then reached, so that a thread that has waited for it finds the stream idle.
                    Job::Reach(point) => {
                        done();
                        point.reach();
                    }
                }
            }
        };
        let started = thread::Builder::new().name("sample stream".to_owned()).spawn(work);
        started.map(|_| queue).map_err(|error| {
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
