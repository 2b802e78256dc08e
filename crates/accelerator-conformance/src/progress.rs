//! What every case is doing now, for messages about cases that hang and processes that crash.
//!
//! Each thread of a case has a slot in a fixed table of atomics, so that a signal handler can read it.

use std::cell::Cell;
use std::fmt::Write;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::calls::Call;

/// How many seconds anything may take that a case waits for, such as a driver call.
const LIMIT: &str = "ACCELERATOR_CASE_LIMIT";
const DEFAULT_LIMIT: u64 = 60;
/// A case may take this many times as long as a call.
const CALLS: u32 = 10;

/// Returns how long a driver call of a case may take, and anything else that a case waits for. No passing case waits
/// this long.
pub(crate) fn limit() -> Duration {
    static READ: OnceLock<Duration> = OnceLock::new();
    *READ.get_or_init(|| {
        let seconds = std::env::var(LIMIT).ok().and_then(|text| text.trim().parse().ok());
        Duration::from_secs(seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_LIMIT))
    })
}

/// What a thread is doing. All times are in nanoseconds since the first use of the table.
pub(crate) struct Slot {
    taken: AtomicBool,
    /// The name of the case, or null in a thread that a case started.
    case: AtomicPtr<&'static str>,
    /// The sentence of the contract that the case is checking, or null.
    step: AtomicPtr<&'static str>,
    /// The driver call that the thread is in, counted from 1, or 0.
    call: AtomicUsize,
    since: AtomicU64,
}

/// More threads than this are not watched.
const SLOTS: usize = 256;

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];

impl Slot {
    const fn free() -> Self {
        Self {
            taken: AtomicBool::new(false),
            case: AtomicPtr::new(ptr::null_mut()),
            step: AtomicPtr::new(ptr::null_mut()),
            call: AtomicUsize::new(0),
            since: AtomicU64::new(0),
        }
    }

    fn call(&self) -> Option<Call> {
        let number = self.call.load(Ordering::Relaxed).checked_sub(1)?;
        Call::ALL.get(number).copied()
    }

    fn since(&self) -> Duration {
        now().saturating_sub(Duration::from_nanos(self.since.load(Ordering::Relaxed)))
    }

    /// The name of the case and the step, where they are known. It may be called in a signal handler.
    pub(crate) fn texts(&self) -> [Option<&'static str>; 3] {
        let [case, step] = [&self.case, &self.step].map(|text| text_of(text.load(Ordering::Acquire)));
        [case, step, self.call().map(Call::name)]
    }
}

fn text_of(text: *mut &'static str) -> Option<&'static str> {
    // SAFETY: Only `pointer` makes these, from references that live as long as the process.
    NonNull::new(text).map(|text| unsafe { *text.as_ref() })
}

fn pointer(text: &'static &'static str) -> *mut &'static str {
    ptr::from_ref(text).cast_mut()
}

fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Returns the slots in use. It may be called in a signal handler.
pub(crate) fn in_use() -> impl Iterator<Item = &'static Slot> {
    TABLE.iter().filter(|slot| slot.taken.load(Ordering::Acquire))
}

/// Whether cases run in this process. Other programs over `AnyBackend` need not pay for being watched.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The first case of group M that failed in this process, or null.
static BROKEN: AtomicPtr<&'static str> = AtomicPtr::new(ptr::null_mut());

/// Notes that a case of group M failed. Only the first counts.
pub(crate) fn set_broken(name: &str) {
    let _ = BROKEN.compare_exchange(ptr::null_mut(), pointer(for_ever(name)), Ordering::AcqRel, Ordering::Acquire);
}

/// Returns the first case of group M that failed. It may be called in a signal handler.
pub(crate) fn broken() -> Option<&'static str> {
    text_of(BROKEN.load(Ordering::Acquire))
}

fn for_ever(text: &str) -> &'static &'static str {
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    Box::leak(Box::new(text))
}

/// The slot of a thread, given back when the thread ends.
struct Seat(Option<&'static Slot>);

impl Seat {
    fn take() -> Self {
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::AcqRel);
        Self(TABLE.iter().find(free))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(slot) = self.0 else { return };
        slot.case.store(ptr::null_mut(), Ordering::Release);
        slot.step.store(ptr::null_mut(), Ordering::Release);
        slot.call.store(0, Ordering::Relaxed);
        slot.taken.store(false, Ordering::Release);
    }
}

thread_local! {
    static SEAT: Seat = Seat::take();
    /// Calls may be nested: only the outermost counts.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn seat() -> Option<&'static Slot> {
    SEAT.try_with(|seat| seat.0).ok().flatten()
}

/// Notes what the case on this thread is checking, for messages: a sentence of the contract.
pub(crate) fn step(sentence: &'static &'static str) {
    if let Some(slot) = seat() {
        slot.step.store(pointer(sentence), Ordering::Release);
    }
}

/// Notes that this thread is in a driver call, until the result is dropped.
pub(crate) fn inside(call: Call) -> Inside {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // A call while a panic unwinds is not the one that it came from.
    if depth == 0
        && !thread::panicking()
        && IS_WATCHED.load(Ordering::Relaxed)
        && let Some(slot) = seat()
    {
        slot.since.store(now().as_nanos() as u64, Ordering::Relaxed);
        slot.call.store(call as usize + 1, Ordering::Relaxed);
    }
    Inside
}

pub(crate) struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get().saturating_sub(1);
        DEPTH.set(depth);
        // While a panic unwinds, the call is kept: it says where the panic came from.
        if depth == 0
            && !thread::panicking()
            && let Some(slot) = seat()
        {
            slot.call.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the driver call that a panic on this thread came out of, if it came out of one, and forgets it.
pub(crate) fn call_that_panicked() -> Option<Call> {
    let slot = seat()?;
    let call = slot.call();
    slot.call.store(0, Ordering::Relaxed);
    call
}

/// Runs a case on a thread of its own, and returns its result, or why it is stuck. A stuck thread is left behind.
pub(crate) fn watch<R: Send + 'static>(name: &str, case: impl FnOnce() -> R + Send + 'static) -> Result<R, String> {
    IS_WATCHED.store(true, Ordering::Relaxed);
    let (done, result) = mpsc::channel();
    let leaked = for_ever(name);
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Some(slot) = seat() {
            slot.case.store(pointer(leaked), Ordering::Release);
        }
        let _ = done.send(case());
    });
    let thread = started.map_err(|error| format!("no thread could be started for the case: {error}"))?;
    let (start, limit) = (Instant::now(), limit());
    loop {
        match result.recv_timeout(limit) {
            Ok(result) => {
                let _ = thread.join(); // it has caught every panic of the case
                return Ok(result);
            }
            Err(RecvTimeoutError::Disconnected) => return Err("the thread of the case ended without a result".into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let doing = doing(leaked);
        eprintln!("`{name}` has been running for {} s: {doing}", start.elapsed().as_secs());
        if let Some(stuck) = stuck(leaked, limit) {
            return Err(stuck);
        }
        if start.elapsed() > limit * CALLS {
            return Err(format!("it did not end within {} s: {doing}", start.elapsed().as_secs()));
        }
    }
}

/// Returns what the threads of a case are doing. Threads that it started cannot be told from those of other cases.
fn doing(case: &'static &'static str) -> String {
    let mut text = String::new();
    for slot in in_use() {
        let [of, step, _] = slot.texts();
        if of.is_some_and(|of| of != *case) {
            continue;
        }
        let who = if of.is_some() { "it is" } else { "a thread is" };
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = match slot.call() {
            Some(call) => write!(text, "{separator}{who} in `{}` for {} s", call.name(), slot.since().as_secs()),
            None if of.is_some() => write!(text, "{separator}{who} not in a driver call"),
            None => Ok(()),
        };
        if let Some(step) = step {
            let _ = write!(text, ", checking that {step}");
        }
    }
    text
}

/// Returns which driver call of the case has not returned within the limit.
fn stuck(case: &'static &'static str, limit: Duration) -> Option<String> {
    let mut stuck = in_use().filter(|slot| {
        let [of, ..] = slot.texts();
        of.is_none_or(|of| of == *case) && slot.call().is_some() && slot.since() >= limit
    });
    let slot = stuck.next()?;
    let [_, step, call] = slot.texts();
    let checking = step.map(|step| format!(", while checking that {step}")).unwrap_or_default();
    Some(format!("`{}` has not returned for {} s{checking}", call.unwrap_or("a call"), slot.since().as_secs()))
}
