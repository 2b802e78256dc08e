//! The one way into a driver: every exported function goes through [`call`], which counts it, logs it, and
//! makes it fail when a test asked for that.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::face::{Code, Face};
use crate::session::{Lock, Session};
use crate::thread;

/// The arguments of a call as text, if calls are logged.
pub fn logged<F: Face>(lock: &'static Lock<F>, arguments: impl FnOnce() -> String) -> Option<String> {
    lock.log().map(|_| arguments())
}

/// Runs one driver call.
pub fn call<F: Face>(
    name: &'static str,
    arguments: Option<String>,
    body: impl FnOnce(&mut Session<F>) -> Result<(), F::Code>,
) -> Result<(), F::Code> {
    // Before the lock, which another thread of the parent may have held at the fork.
    if F::lock().is_forked() {
        return Err(F::Code::FORKED);
    }
    // Nothing may unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut session = Session::<F>::new();
        let outcome = session.engine_mut().faults.count(name);
        let outcome = outcome.inspect_err(|code| session.injected(*code)).and_then(|()| body(&mut session));
        if let Some(arguments) = arguments {
            log::<F>(session.engine().faults.total(), name, &arguments, outcome);
        }
        outcome
    }));
    outcome.unwrap_or(Err(F::Code::UNKNOWN))
}

fn log<F: Face>(number: u64, name: &str, arguments: &str, outcome: Result<(), F::Code>) {
    if let Some(mut file) = F::lock().log() {
        let outcome = F::Code::describe(outcome);
        // A log that cannot be written is no reason for a driver to fail.
        let _ = writeln!(file, "{number} thread {} {name}{arguments} = {outcome}", thread::number());
    }
}

/// Exports control functions, which are no calls of the API: not counted, and nothing makes them fail. Each
/// one's signature, and what is done with the [`Session`] of the face that the header names.
#[macro_export]
macro_rules! controls {
    ([$face:ty] $(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty => $work:expr;
    )*) => {$(
        $(#[$meta])*
        // SAFETY: no other function of a program has this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> $result {
            let work: fn(&mut $crate::Session<$face> $(, $type)*) -> $result = $work;
            work(&mut $crate::Session::new() $(, $argument)*)
        }
    )*};
}
