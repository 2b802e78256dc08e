//! Which requests go to which private pool.

use std::sync::Arc;

use crate::event::Events;
use crate::sync::primitives::thread::{self, ThreadId};
use crate::types::{DriverResult, MemPoolId, StreamId};

/// The requests that a route sends to its pool.
pub(crate) enum Applies {
    /// All of them.
    Everywhere,
    /// Those of a stream.
    Stream(StreamId),
    /// Those that a thread makes.
    Thread(ThreadId),
    /// Those of the streams that take part in a capture.
    Capture(u64),
    /// Those of the streams that the user's function chooses.
    Filter(Box<dyn Fn(StreamId) -> bool + Send + Sync>),
}

/// The number of a route among those of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(u64);

pub(super) struct Route {
    id: RouteId,
    pub(super) pool: MemPoolId,
    applies: Applies,
}

impl Route {
    /// Returns whether a request of this stream, made by this thread, takes the route.
    pub(super) fn applies(&self, stream: StreamId, events: &dyn Events) -> DriverResult<bool> {
        Ok(match &self.applies {
            Applies::Everywhere => true,
            Applies::Stream(of) => *of == stream,
            Applies::Thread(of) => *of == thread::current().id(),
            Applies::Capture(of) => events.capture_of(stream)? == Some(*of),
            Applies::Filter(filter) => filter(stream),
        })
    }
}

/// The routes, from the oldest. The youngest that applies to a request is the one taken.
#[derive(Default)]
pub(super) struct Routes {
    /// Shared with the requests that are choosing one.
    routes: Arc<Vec<Arc<Route>>>,
    begun: u64,
}

impl Routes {
    pub(super) fn add(&mut self, pool: MemPoolId, applies: Applies) -> RouteId {
        self.begun += 1;
        let id = RouteId(self.begun);
        Arc::make_mut(&mut self.routes).push(Arc::new(Route { id, pool, applies }));
        id
    }

    /// Removes a route. The caller drops it without a lock held, because the filter is the user's.
    pub(super) fn remove(&mut self, id: RouteId) -> Option<Arc<Route>> {
        let place = self.routes.iter().position(|route| route.id == id)?;
        Some(Arc::make_mut(&mut self.routes).remove(place))
    }

    pub(super) fn contains(&self, route: &Route) -> bool {
        self.routes.iter().any(|one| one.id == route.id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub(super) fn all(&self) -> Arc<Vec<Arc<Route>>> {
        Arc::clone(&self.routes)
    }
}
