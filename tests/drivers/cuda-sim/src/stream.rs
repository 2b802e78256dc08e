//! Streams: queues of work that happens later.

use std::collections::VecDeque;

use crate::capture::Captured;
use crate::code::{Code, Outcome};
use crate::scheduler::Position;
use crate::state::{Driver, Handle};
use crate::thread;
use crate::work::Work;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream, which blocking streams of its context wait for, and it for them.
    Legacy,
    Blocking,
    NonBlocking,
}

pub(crate) struct Operation {
    pub(crate) number: u64,
    /// What has to be over before it, in other streams.
    pub(crate) after: Vec<Position>,
    pub(crate) work: Work,
}

pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    pub(crate) queue: VecDeque<Operation>,
    /// The number of the operation submitted last, counted from 1.
    pub(crate) submitted: u64,
    /// Operations up to this number are over.
    pub(crate) completed: u64,
    /// Runs nothing, unless somebody waits for it.
    pub(crate) held: bool,
    /// A host function of it runs on a thread of its own.
    pub(crate) running: bool,
    /// Unknown to the program from now on, though its work still happens.
    pub(crate) destroyed: bool,
    pub(crate) captured: Option<Captured>,
}

impl Stream {
    pub(crate) fn new(context: Handle, kind: Kind, priority: i32) -> Self {
        Self {
            context,
            kind,
            priority,
            queue: VecDeque::new(),
            submitted: 0,
            completed: 0,
            held: false,
            running: false,
            destroyed: false,
            captured: None,
        }
    }

    /// Lets its work be over without happening.
    pub(crate) fn drop_work(&mut self) {
        self.queue.clear();
        self.completed = self.submitted;
        self.captured = None;
    }

    /// Whether nobody can tell any more that it was there.
    pub(crate) fn is_gone(&self) -> bool {
        self.destroyed && self.queue.is_empty() && !self.running
    }
}

/// `CU_STREAM_LEGACY`, which 0 is short for.
const LEGACY: Handle = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: Handle = 2;

impl Driver {
    /// The stream that the program means: a handle, or one of the default streams of the current context.
    pub(crate) fn stream(&mut self, handle: Handle) -> Outcome<Handle> {
        let found = match handle {
            0 | LEGACY => self.context_now()?.legacy,
            PER_THREAD => self.per_thread_stream()?,
            other => other,
        };
        let stream = self.streams.get(&found).filter(|stream| !stream.destroyed);
        let context = stream.ok_or(Code::INVALID_HANDLE)?.context;
        self.context(context)?;
        Ok(found)
    }

    fn context_now(&mut self) -> Outcome<&mut crate::context::Context> {
        let current = self.current()?;
        self.context(current)
    }

    fn per_thread_stream(&mut self) -> Outcome<Handle> {
        let thread = thread::number();
        if let Some(stream) = self.context_now()?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let context = self.current()?;
        let handle = self.new_handle();
        self.streams.insert(handle, Stream::new(context, Kind::Blocking, 0));
        self.context_now()?.per_thread.insert(thread, handle);
        Ok(handle)
    }

    /// The device that runs a stream's work.
    pub(crate) fn device_of(&self, stream: Handle) -> Outcome<usize> {
        let context = self.streams.get(&stream).and_then(|stream| self.contexts.get(&stream.context));
        context.map(|context| context.device).ok_or(Code::INVALID_HANDLE)
    }
}
