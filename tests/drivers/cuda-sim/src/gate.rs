//! The one way into the driver: every exported function goes through [`call`], which counts it, logs it,
//! checks what every call must check, and makes it fail when a test asked for that.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::code::{self, Code, Outcome};
use crate::state::{Driver, Handle, Session};
use crate::thread;

/// Where a call puts a result: C's pointer, null as `None`.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

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

/// The process that called `cuInit`; its forked children cannot use the driver.
static OWNER: AtomicU32 = AtomicU32::new(0);

static LOG: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("CUDA_SIM_LOG")?;
    File::options().create(true).append(true).open(path).ok()
});

/// The arguments of a call as text, if calls are logged.
pub(crate) fn logged(arguments: impl FnOnce() -> String) -> Option<String> {
    LOG.as_ref().map(|_| arguments())
}

/// Runs one driver call.
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    arguments: Option<String>,
    body: impl FnOnce(&mut Session) -> Outcome,
) -> i32 {
    // Before the lock, which another thread of the parent may have held at the fork.
    if is_forked() {
        return Code::NOT_INITIALIZED.0;
    }
    // Nothing may unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut session = Session::new();
        let outcome = enter(&mut session, name, needs).and_then(|()| body(&mut session));
        if let Some(arguments) = arguments {
            log(session.faults.total(), name, &arguments, outcome);
        }
        outcome
    }));
    match outcome.unwrap_or(Err(Code::UNKNOWN)) {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}

fn enter(driver: &mut Driver, name: &'static str, needs: Needs) -> Outcome {
    driver.faults.count(name).inspect_err(|code| {
        if code.is_sticky() {
            driver.fail_context(thread::current(), *code);
        }
    })?;
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

/// Remembers whose driver this is.
pub(crate) fn own() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

fn is_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

fn log(number: u64, name: &str, arguments: &str, outcome: Outcome) {
    let code = outcome.err().map_or(0, |code| code.0);
    let text = code::name(code).unwrap_or_default().to_string_lossy();
    if let Some(mut file) = LOG.as_ref() {
        // A log that cannot be written is no reason for a driver to fail.
        let _ = writeln!(file, "{number} thread {} {name}{arguments} = {code} {text}", thread::number());
    }
}

/// The place for a result that the caller has to give.
pub(crate) fn required<T>(place: Option<T>) -> Outcome<T> {
    place.ok_or(Code::INVALID_VALUE)
}

/// A result that the caller may do without.
pub(crate) fn put<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
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
            let arguments = crate::gate::logged(|| format!("{:x?}", ($(&$argument,)*)));
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
