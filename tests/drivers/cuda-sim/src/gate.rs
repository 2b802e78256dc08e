//! The one way into the driver: every exported function goes through [`call`], which checks what every call
//! must check.

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle, Session};
use crate::thread;

/// What has to hold before a call does anything; each one asks for what those above it ask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    Nothing,
    /// `cuInit` has succeeded in this process.
    Init,
    /// The current context, if there is one, has not failed.
    Healthy,
    /// There is a current context.
    Context,
    /// The calling thread may do what is unsafe while a stream is captured.
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

/// The place for a result that the caller has to give.
pub(crate) fn required<T>(place: Option<T>) -> Outcome<T> {
    place.ok_or(Code::INVALID_VALUE)
}

impl Driver {
    /// The current context of the calling thread.
    pub(crate) fn current(&self) -> Outcome<Handle> {
        let current = thread::current();
        match self.contexts.contains_key(&current) {
            true => Ok(current),
            false if current == 0 => Err(Code::INVALID_CONTEXT),
            false => Err(Code::CONTEXT_IS_DESTROYED),
        }
    }
}

/// Exports functions of the driver API: each one's C signature, what it needs, and the function that does its
/// work, which gets the locked driver before the arguments. `raw` where that function follows raw pointers,
/// else `safe`. `newer` are those that an old driver lacks.
macro_rules! exports {
    (newer: $($functions:tt)*) => {
        // SAFETY: nothing in a program has a name of the driver API but the driver.
        crate::gate::exports!(@export [cfg_attr(not(feature = "old-driver"), unsafe(no_mangle))] $($functions)*);
    };
    (@export [$export:meta] $(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) [$needs:ident] => $safety:tt $work:ident;
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the driver API says: each pointer is null, or good for what the function reads or writes there.
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
        // SAFETY: nothing in a program has a name of the driver API but the driver.
        crate::gate::exports!(@export [unsafe(no_mangle)] $($functions)*);
    };
}
pub(crate) use exports;
