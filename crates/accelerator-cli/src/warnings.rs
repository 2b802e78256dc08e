//! Prints warnings of the libraries on standard error.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::printable;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::console;

/// Starts to print warnings. Called once, before everything else.
pub(crate) fn show() {
    let _ = tracing::subscriber::set_global_default(Warnings::default()); // fails if a subscriber is already set
}

/// A subscriber that handles only warnings and ignores spans. It prints each text once: commands open the same device
/// many times, and would repeat a warning about it.
#[derive(Default)]
struct Warnings(Mutex<HashSet<String>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(self));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Warnings);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let text = printable(&format!("{value:?}")); // it may contain a name from a driver
            let mut shown = lock(&self.0.0);
            if shown.insert(text.clone()) {
                console::warn(&text);
            }
        }
    }
}
