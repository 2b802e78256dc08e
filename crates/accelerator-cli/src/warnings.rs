//! Prints warnings of the libraries on standard error.

use std::fmt::Debug;

use accelerator_core::printable;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::console;

/// Starts to print warnings. Called once, before everything else.
pub(crate) fn show() {
    let _ = tracing::subscriber::set_global_default(Warnings); // fails if a subscriber is already set
}

/// A subscriber that handles only warnings and ignores spans.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            console::warn(&printable(&format!("{value:?}"))); // it may contain a name from a driver
        }
    }
}
