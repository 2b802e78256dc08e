//! The one way into a driver. Every exported function goes through [`call`], which counts and logs it, and makes it
//! fail when a test requested that.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::face::{Code, Face};
use crate::session::{Lock, Session};
use crate::thread;

/// Formats the arguments of a call if calls are logged.
pub fn logged<F: Face>(lock: &'static Lock<F>, arguments: impl FnOnce() -> String) -> Option<String> {
    lock.log().map(|_| arguments())
}

/// Runs one driver call.
pub fn call<F: Face>(
    name: &'static str,
    arguments: Option<String>,
    body: impl FnOnce(&mut Session<F>) -> Result<(), F::Code>,
) -> Result<(), F::Code> {
    // Checked before locking: another thread of the parent may have held the lock at the fork.
    if F::lock().is_forked() {
        return Err(F::Code::FORKED);
    }
    // A panic must not unwind into C.
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
        // A driver must not fail because its log cannot be written.
        let _ = writeln!(file, "{number} thread {} {name}{arguments} = {outcome}", thread::number());
    }
}

/// Exports control functions, which are not API calls: they are not counted and never fail. Each entry has a signature
/// and a closure over the [`Session`] of the face in the header.
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
