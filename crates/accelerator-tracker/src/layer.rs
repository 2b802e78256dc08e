//! Spans of the crate `tracing` as modules and operators.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::tracker::{MemoryTracker, Opener, close, current_scope, open};

/// Feeds a tracker with the spans and events that an application already has.
///
/// A span is a module while it is entered, inside the spans around it: `forward` within `step` is `step.forward`. A
/// span without spans of its own is also an operator of its name. It is recorded when the span closes, in the module
/// around it. An event with a field `marker`, such as `tracing::info!(marker = "fw_start")`, sets the marker of that
/// name. Everything that this layer sees counts: give it a filter.
#[derive(Clone, Debug)]
pub struct TrackerLayer {
    tracker: MemoryTracker,
}

impl TrackerLayer {
    /// A layer that feeds this tracker.
    pub fn new(tracker: MemoryTracker) -> Self {
        Self { tracker }
    }
}

/// The names of a span's module.
struct Module {
    /// The path of the module around it.
    around: Option<Arc<str>>,
    path: Arc<str>,
}

/// Marks a span in which another one was made.
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
    /// Inside the span around it, or otherwise inside the module that the thread is in.
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
