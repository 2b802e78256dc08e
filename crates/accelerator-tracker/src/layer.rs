//! Records spans of the crate `tracing` as modules and operators.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::tracker::{MemoryTracker, Opener, close, current_scope, open};

/// Feeds a tracker with the existing spans and events of an application.
///
/// While a span is entered, it is a module inside the enclosing spans: `forward` within `step` is `step.forward`. A
/// span without inner spans is also an operator with its name. It is recorded in the enclosing module when the span
/// closes. An event with a field `marker`, such as `tracing::info!(marker = "fw_start")`, sets the marker with that
/// name. The layer records everything that it receives, so add a filter to it.
#[derive(Clone, Debug)]
pub struct TrackerLayer {
    tracker: MemoryTracker,
}

impl TrackerLayer {
    /// Creates a layer that feeds this tracker.
    pub fn new(tracker: MemoryTracker) -> Self {
        Self { tracker }
    }
}

/// The names of a span's module.
struct Module {
    /// The path of the enclosing module.
    around: Option<Arc<str>>,
    path: Arc<str>,
}

/// Marks a span in which another one was created.
struct HasChildren;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TrackerLayer {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let module = Module::of(&span);
        if let Some(parent) = span.parent() {
            parent.extensions_mut().replace(HasChildren);
        }
        span.extensions_mut().replace(module);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let path =
            context.span(id).and_then(|span| span.extensions().get::<Module>().map(|module| Arc::clone(&module.path)));
        if let Some(path) = path {
            open(Opener::Span(id.into_u64()), path);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        close(Opener::Span(id.into_u64()));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let around = {
            let noted = span.extensions();
            if noted.get::<HasChildren>().is_some() {
                return;
            }
            noted.get::<Module>().and_then(|module| module.around.clone())
        };
        self.tracker.operator_in(around, span.name());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.tracker.is_running() && event.fields().any(|field| field.name() == "marker") {
            let mut name = MarkerName(None);
            event.record(&mut name);
            if let Some(name) = name.0 {
                self.tracker.marker(&name);
            }
        }
    }
}

impl Module {
    /// Returns the module of a span. It is nested in the module of the enclosing span, or else in the thread's current
    /// module.
    fn of<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Self {
        let parent = span.parent();
        let around =
            parent.as_ref().and_then(|parent| parent.extensions().get::<Self>().map(|module| Arc::clone(&module.path)));
        match around.or_else(current_scope) {
            Some(around) => {
                let path = format!("{around}.{}", span.name()).into();
                Self { around: Some(around), path }
            }
            None => Self { around: None, path: span.name().into() },
        }
    }
}

/// The name that an event gives to a marker.
struct MarkerName(Option<String>);

impl Visit for MarkerName {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "marker" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "marker" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}
