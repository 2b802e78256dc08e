//! How a case ends.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::progress;

/// The result of a case. A case may panic as well.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a case did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The backend or the core did something wrong.
    Failed(String),
    /// The case could not look at what it is about, for this reason. It then shows as ignored.
    NotAsked(String),
    /// The device makes no progress, so other cases would wait in vain, too.
    Stuck(String),
}

impl Failure {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Failed(text) | Self::NotAsked(text) | Self::Stuck(text) => text,
        }
    }
}

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Returns the result of a thread that has ended, or the message of its panic.
pub(crate) fn joined<T>(thread: thread::Result<T>) -> Result<T, Failure> {
    thread.map_err(|panic| Failure::Failed(format!("a thread panicked: {}", panic_text(&*panic))))
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// Runs a case. A panic becomes a failure, which names the method of the backend that it came out of.
pub(crate) fn caught(case: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Failure::Failed(match progress::call_that_panicked() {
            Some(call) => format!("`{}` panicked, which no method may do: {text}", call.name()),
            None => text.to_owned(),
        }))
    })
}
