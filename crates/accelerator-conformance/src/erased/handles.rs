//! Streams and events of any backend.

use std::any::Any;
use std::fmt::{self, Debug};

use accelerator_core::{Backend, DriverError, DriverErrorKind, DriverResult};

/// A handle that a backend makes: a stream or an event.
trait Handle: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Handle for T {}

/// A stream of any backend.
pub struct AnyStream(Box<dyn Handle>);

/// An event of any backend.
pub struct AnyEvent(Box<dyn Handle>);

impl AnyStream {
    pub(super) fn new<B: Backend>(stream: B::Stream) -> Self {
        Self(Box::new(stream))
    }

    /// Returns the stream of the backend `B`.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) for a stream of another backend.
    pub fn of<B: Backend>(&self) -> DriverResult<&B::Stream> {
        downcast(&*self.0).ok_or(invalid("stream", "the stream belongs to another backend"))
    }
}

impl AnyEvent {
    pub(super) fn new<B: Backend>(event: B::Event) -> Self {
        Self(Box::new(event))
    }

    /// The event as the backend `B` made it.
    ///
    /// Returns the event of the backend `B`.
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) for an event of another backend.
    pub fn of<B: Backend>(&self) -> DriverResult<&B::Event> {
        downcast(&*self.0).ok_or(invalid("event", "the event belongs to another backend"))
    }
}

impl Debug for AnyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn downcast<T: Any>(handle: &dyn Handle) -> Option<&T> {
    (handle as &dyn Any).downcast_ref()
}

pub(super) fn invalid(call: &'static str, name: &'static str) -> DriverError {
    DriverError::refused(DriverErrorKind::InvalidArgument, call, name)
}
