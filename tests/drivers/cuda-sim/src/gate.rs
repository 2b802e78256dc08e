//! The one way into the driver. Every exported function goes through [`call`], which makes the checks that every call
//! needs.

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle, Session};
use crate::thread;

/// What must be true before a call does anything. Each variant includes the ones above it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    Nothing,
    /// `cuInit` has succeeded in this process.
    Init,
    /// The current context, if any, has not failed.
    Healthy,
    /// There is a current context.
    Context,
    /// The calling thread may make calls that are unsafe while a stream is captured.
    NoCapture,
}

/// Runs one driver call.
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    arguments: Option<String>,
    body: impl FnOnce(&mut Session) -> Outcome,
) -> i32 {
    let outcome = sim_engine::gate::call(name, arguments, |driver: &mut Session| {
        check(driver, needs)?;
        body(driver)
    });
    outcome.err().map_or(0, |code| code.0)
}

fn check(driver: &mut Driver, needs: Needs) -> Outcome {
    if thread::in_host_function() {
        return Err(Code::NOT_PERMITTED);
    }
    if needs >= Needs::Init && !driver.initialised {
        return Err(Code::NOT_INITIALIZED);
    }
    if needs >= Needs::Healthy
        && let Some(context) = driver.contexts.get(&thread::current())
    {
        context.check()?;
    }
    if needs >= Needs::Context {
        driver.current()?;
    }
    if needs >= Needs::NoCapture {
        driver.check_no_capture()?;
    }
    Ok(())
}

/// Returns the place for a mandatory result.
pub(crate) fn required<T>(place: Option<T>) -> Outcome<T> {
    place.ok_or(Code::INVALID_VALUE)
}

impl Driver {
    /// Returns the current context of the calling thread.
    pub(crate) fn current(&self) -> Outcome<Handle> {
        let current = thread::current();
        match self.contexts.contains_key(&current) {
            true => Ok(current),
            false if current == 0 => Err(Code::INVALID_CONTEXT),
            false => Err(Code::CONTEXT_IS_DESTROYED),
        }
    }
}

/// Exports functions of the driver API. Each entry has a C signature, what the call needs, and the function that
/// implements it, which gets the locked driver before the arguments. `raw` marks functions that follow raw pointers;
/// all others are `safe`. Functions under `newer` are absent from an old driver.
macro_rules! exports {
    (newer: $($functions:tt)*) => {
        // SAFETY: only the driver defines names of the driver API in a program.
        crate::gate::exports!(@export [cfg_attr(not(feature = "old-driver"), unsafe(no_mangle))] $($functions)*);
    };
    (@export [$export:meta] $(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) [$needs:ident] => $safety:tt $work:ident;
    )*) => {$(
        $(#[$meta])*
        /// # Safety
        ///
        /// As the driver API requires: each pointer is null, or valid for what the function reads or writes there.
        #[$export]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            let lock = &crate::state::LOCK;
            let arguments = sim_engine::gate::logged(lock, || format!("{:x?}", ($(&$argument,)*)));
            crate::gate::call(stringify!($name), crate::gate::Needs::$needs, arguments, move |session| {
                crate::gate::exports!(@call $safety $work, session $(, $argument)*)
            })
        }
    )*};
    (@call safe $work:ident, $($argument:ident),*) => { self::$work($($argument),*) };
    (@call raw $work:ident, $($argument:ident),*) => {{
        // SAFETY: the caller of the exported function keeps the same promise.
        unsafe { self::$work($($argument),*) }
    }};
    ($($functions:tt)*) => {
        // SAFETY: only the driver defines names of the driver API in a program.
        crate::gate::exports!(@export [unsafe(no_mangle)] $($functions)*);
    };
}
pub(crate) use exports;
