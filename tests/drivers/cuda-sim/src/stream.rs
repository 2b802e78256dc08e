//! Streams: lanes with the rules for default streams.

use sim_engine::{Operation, Position, Work};

use crate::capture::{Captured, Reported};
use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};
use crate::thread;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream. It and the blocking streams of its context wait for each other.
    Legacy,
    Blocking,
    NonBlocking,
}

/// The driver's data of a lane.
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    pub(crate) captured: Option<Captured>,
    /// What the program was told last about its capture. It reads this memory.
    pub(crate) reported: Reported,
}

/// `CU_STREAM_LEGACY`; handle 0 means the same.
const LEGACY: Handle = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: Handle = 2;

impl Driver {
    /// Creates a stream of an existing context.
    pub(crate) fn open_stream(&mut self, context: Handle, device: usize, kind: Kind, priority: i32) -> Handle {
        let handle = self.engine.new_handle();
        self.engine.open_lane(
            handle,
            device,
            Stream { context, kind, priority, captured: None, reported: Reported::default() },
        );
        handle
    }

    /// Resolves a handle, which may name one of the current context's default streams.
    pub(crate) fn stream(&mut self, handle: Handle) -> Outcome<Handle> {
        let found = match handle {
            0 | LEGACY => self.context_now()?.legacy,
            PER_THREAD => self.per_thread_stream()?,
            other => other,
        };
        let lane = self.engine.lanes.get(&found).filter(|lane| !lane.is_closed());
        let context = lane.ok_or(self.settings.destroyed_stream)?.data.context;
        self.context(context)?;
        Ok(found)
    }

    /// Returns the state of a stream, even after it is destroyed.
    pub(crate) fn state_of(&self, stream: Handle) -> Outcome<&Stream> {
        self.engine.lanes.get(&stream).map(|lane| &lane.data).ok_or(Code::INVALID_HANDLE)
    }

    /// Returns the state of a stream, for changes.
    pub(crate) fn state_of_mut(&mut self, stream: Handle) -> Outcome<&mut Stream> {
        self.engine.lanes.get_mut(&stream).map(|lane| &mut lane.data).ok_or(Code::INVALID_HANDLE)
    }

    fn context_now(&mut self) -> Outcome<&mut crate::context::Context> {
        let current = self.current()?;
        self.context(current)
    }

    fn per_thread_stream(&mut self) -> Outcome<Handle> {
        let thread = thread::number();
        let context = self.context_now()?;
        if let Some(stream) = context.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let device = context.device;
        let handle = self.open_stream(self.current()?, device, Kind::Blocking, 0);
        self.context_now()?.per_thread.insert(thread, handle);
        Ok(handle)
    }

    /// Submits work to a stream. Returns `None` if a capture took it instead.
    pub(crate) fn submit(&mut self, stream: Handle, work: Work) -> Outcome<Option<Position>> {
        self.submit_operation(stream, Operation::new(work))
    }

    /// Submits an operation to a stream. Returns `None` if a capture took it instead.
    pub(crate) fn submit_operation(&mut self, stream: Handle, operation: Operation<Self>) -> Outcome<Option<Position>> {
        let Some(operation) = self.capture_operation(stream, operation)? else { return Ok(None) };
        let implied = self.implied(stream);
        Ok(self.engine.submit(stream, operation.after(implied)))
    }

    /// Returns what the next operation of a stream waits for implicitly: the legacy default stream and the blocking
    /// streams of a context wait for each other.
    fn implied(&self, stream: Handle) -> Vec<Position> {
        let Ok(state) = self.state_of(stream) else { return Vec::new() };
        let awaited = match state.kind {
            Kind::Legacy => Kind::Blocking,
            Kind::Blocking => Kind::Legacy,
            Kind::NonBlocking => return Vec::new(),
        };
        self.engine.ends(|_, other| other.data.context == state.context && other.data.kind == awaited)
    }
}
