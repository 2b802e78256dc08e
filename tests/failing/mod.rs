//! Driver calls that fail one at a time, in pairs, and from one on: in each conformance case, and in random programs.
//!
//! Whatever fails, nothing panics and nothing waits for ever. Once calls succeed again, all memory is known or back at
//! the driver, and the device works.
//!
//! | environment variable | meaning |
//! |---|---|
//! | `ACCELERATOR_FAILING_RUNS` | the runs of each case and program of each kind; if it makes fewer calls, each call |
//! | `ACCELERATOR_FAILING_PROGRAMS` | the number of random programs |
//! | `ACCELERATOR_FAILING_ONLY` | the only case, by part of its name, or the only program, by its number |
//!
//! Long cases have a fifth as many runs.

mod panics;
mod plans;
mod program;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use accelerator_conformance::{Failing, FailingCalls, PlannedCase, Withstood, is_other_process};
use accelerator_core::backend_kit::lock;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Device, DriverErrorKind, DriverResult, Error};
use libtest_mimic::Failed;

use self::program::Program;

/// Calls of a driver, some of which fail from now on.
pub(crate) trait Driver: Send + Sync + 'static {
    /// The backend of the random programs.
    type Backend: Backend;

    /// Whether memory has contents.
    const HAS_BYTES: bool;

    /// The kinds of errors, in turn.
    const KINDS: &'static [DriverErrorKind] = &[DriverErrorKind::Other, DriverErrorKind::OutOfMemory];

    fn cases() -> Vec<PlannedCase>;

    fn fail(failing: Failing, kind: DriverErrorKind) -> Arc<Self>;

    /// Returns the failures of backends, for cases.
    fn of_backends(&self) -> &Arc<FailingCalls>;

    /// Makes all calls succeed, and returns how many there were.
    fn over(&self) -> u64;

    fn open(&self) -> DriverResult<Self::Backend>;

    /// Returns what the driver itself has given out: pieces of memory, pages, and mappings of pages.
    fn taken() -> [u64; 3];

    /// Returns how many pieces of memory the program's device has taken, and how many misuses there were, if it counts.
    fn counted(_: &Self::Backend) -> [u64; 2] {
        [0; 2]
    }

    /// Returns how many pieces of memory the driver does not get back because it refuses them.
    fn may_lack(failing: Failing) -> u64;
}

const PROGRAMS: &str = "ACCELERATOR_FAILING_PROGRAMS";
const ONLY: &str = "ACCELERATOR_FAILING_ONLY";
/// Set in a process that runs one case or program.
const ALONE: &str = "ACCELERATOR_FAILING_ALONE";
/// The number of the plan that such a process begins with.
const FIRST: &str = "ACCELERATOR_FAILING_FIRST";

type Outcome = Result<(), Failed>;

/// What a case or program did.
struct Ran {
    calls: u64,
    /// Whether a stream is captured for ever, because the driver has refused to end that each time. Then nothing more
    /// can be done in this process.
    is_stuck: bool,
}

/// This case takes memory from the driver itself, and leaves it there if it fails.
const LEAVES_MEMORY: &str = "L114_";

/// Cases of the backend itself. If they fail, they keep host memory that work may still use.
const RAW: &str = "::M";

/// Cases that take long: they go through many failing calls, orders or allocations themselves, wait for a thread that
/// comes to a call, or let work take its time.
const LONG: [&str; 9] = ["D54_", "G101_", "G103_", "G104_", "G105_", "K94_", "K95_", "L109_", "L113_"];

fn has_one_of(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.contains(word))
}

/// Runs the conformance cases. If the environment says how often, long ones run a fifth as often. If not, they are left
/// out, and so are those of the backend itself.
pub(crate) fn cases<D: Driver>(trial: &str, runs: u64) -> Outcome {
    if is_other_process() {
        let _ = D::cases(); // which obeys the process whose calls fail
        return Ok(());
    }
    let names = || D::cases().into_iter().map(|case| case.trial().to_owned());
    if let Ok(name) = env::var(ALONE) {
        let nth = names().position(|other| other == name).ok_or("there is no such case")?;
        let runs = plans::runs(runs).div_ceil(if has_one_of(&name, &LONG) { 5 } else { 1 });
        return alone::<D>(runs, plans::seed_of(&name), |failing, kind| case::<D>(nth, failing, kind));
    }
    let only = env::var(ONLY).unwrap_or_default();
    let without = if plans::is_set() { vec![LEAVES_MEMORY] } else { [&[LEAVES_MEMORY, RAW], &LONG[..]].concat() };
    let is_chosen = |name: &String| name.contains(&only) && !has_one_of(name, &without);
    let chosen: Vec<_> = names().filter(is_chosen).collect();
    each_alone::<D>(trial, "cases", &chosen)
}

/// Runs so many random programs.
pub(crate) fn programs<D: Driver>(trial: &str, programs: u64, runs: u64) -> Outcome {
    if let Ok(seed) = env::var(ALONE) {
        let seed = seed.parse()?;
        return alone::<D>(plans::runs(runs), seed, |failing, kind| program::<D>(seed, failing, kind));
    }
    let programs = env::var(PROGRAMS).map_or(Ok(programs), |programs| programs.parse())?;
    let all = (0..programs).map(|seed| seed.to_string()).collect::<Vec<_>>();
    each_alone::<D>(trial, "programs", &env::var(ONLY).map_or(all, |only| vec![only]))
}

/// Runs each of these in processes of its own, since devices live as long as their process. If a stream is captured for
/// ever, or after many runs, another process goes on.
fn each_alone<D: Driver>(trial: &str, what: &str, names: &[String]) -> Outcome {
    let (start, mut sums, mut wrong) = (Instant::now(), [0; 2], Vec::new());
    terminate_in(0); // never: each of the others limits its own time
    for name in names {
        let mut next = Some(0);
        while let Some(first) = next {
            let mut process = Command::new(env::current_exe()?);
            let process = process.args(["--exact", trial, "--include-ignored", "--nocapture"]);
            let output = process.env(ALONE, name).env(FIRST, first.to_string()).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let told = text.lines().find_map(|line| line.strip_prefix(TOLD));
            let counts: Vec<u64> = told.unwrap_or_default().split(' ').filter_map(|count| count.parse().ok()).collect();
            sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
            next = counts.get(2).copied();
            if told.is_none() || !output.status.success() {
                wrong.push(format!("{name}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
    let [calls, runs] = sums;
    println!("{} {what}, {calls} calls, {runs} runs with failures, {} s", names.len(), start.elapsed().as_secs());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// What precedes the numbers of calls and runs in the output of a process, and that of the next plan if there is one.
const TOLD: &str = "calls, runs, next: ";

/// The most runs of a process. The streams of the host's devices are threads, of which a process has at most 4,096.
const MOST_RUNS: usize = 50;

/// Runs something without failures, and then with each of the plans that this process is for, until a stream is
/// captured for ever.
fn alone<D: Driver>(runs: u64, seed: u64, run: impl Fn(Failing, DriverErrorKind) -> Result<Ran, Failed>) -> Outcome {
    panics::watch();
    let run = |failing, kind| {
        limit_time();
        run(failing, kind)
    };
    let first = env::var(FIRST).map_or(Ok(0), |first| first.parse())?;
    let calls = run(Failing::Nothing, DriverErrorKind::Other)?.calls;
    let plans = plans::plans(calls, runs, seed);
    let (mut wrong, mut next) = (Vec::new(), first);
    for (nth, failing) in plans.iter().enumerate().skip(first).take(MOST_RUNS) {
        next = nth + 1;
        match run(*failing, D::KINDS[nth % D::KINDS.len()]) {
            Ok(Ran { is_stuck: true, .. }) => break,
            Ok(_) => {}
            Err(error) => wrong.push(error.message().unwrap_or_default().to_owned()),
        }
        if wrong.len() == MOST_ERRORS {
            break;
        }
    }
    let new = if first == 0 { calls } else { 0 };
    let rest = if next < plans.len() && wrong.is_empty() { next.to_string() } else { String::new() };
    println!("{TOLD}{new} {} {rest}", next - first);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// Lets this process be terminated in ten minutes, which is longer than any run or trial takes or waits for another
/// process, so that an endless wait is a failure.
pub(crate) fn limit_time() {
    terminate_in(600);
}

/// Lets this process be terminated in so many seconds. Zero means never.
#[allow(unsafe_code, reason = "a call of the system")]
fn terminate_in(seconds: u32) {
    // SAFETY: Without a handler the signal terminates the process.
    unsafe { libc::alarm(seconds) };
}

/// More errors of one case or program say no more.
const MOST_ERRORS: usize = 5;

/// Runs a case.
fn case<D: Driver>(nth: usize, failing: Failing, kind: DriverErrorKind) -> Result<Ran, Failed> {
    let case = D::cases().into_iter().nth(nth).ok_or("there is no such case")?;
    let name = case.trial().to_owned();
    let before = D::taken();
    let (driver, made) = (D::fail(failing, kind), Arc::new(Mutex::new(0)));
    let over = {
        let (driver, made) = (Arc::clone(&driver), Arc::clone(&made));
        move || *lock(&made) = driver.over()
    };
    let Withstood { verdict, afterwards, .. } = case.withstand(driver.of_backends(), over);
    let mut wrong = panics::found();
    let (is_raw, lacks) = (name.contains(RAW), D::may_lack(failing));
    // A driver that refuses so much may keep memory, or go on capturing.
    let is_stuck = lacks > 0 && afterwards.as_ref().is_err_and(|why| why.contains("CAPTURE"));
    let is_expected = lacks == u64::MAX && is_raw || is_stuck;
    wrong.extend(afterwards.err().filter(|_| !is_expected));
    let lacking = lacking_since::<D>(before);
    if lacking > lacks && !is_raw && !is_stuck {
        wrong.push(format!("the driver lacks {lacking} pieces of memory"));
    }
    match wrong.is_empty() {
        true => Ok(Ran { calls: *lock(&made), is_stuck }),
        false => Err(format!("{failing:?} with {kind:?}: {}; the case itself: {verdict}", wrong.join("; ")).into()),
    }
}

/// Returns how many pieces of memory the driver lacks that it had then. A mapping that it refuses to remove keeps its
/// page, too, and is one piece with it.
fn lacking_since<D: Driver>(before: [u64; 3]) -> u64 {
    let after = D::taken();
    let [memory, pages, mappings] = std::array::from_fn(|kind| after[kind].saturating_sub(before[kind]));
    memory + pages.max(mappings)
}

/// Runs a program.
fn program<D: Driver>(seed: u64, failing: Failing, kind: DriverErrorKind) -> Result<Ran, Failed> {
    let (before, driver) = (D::taken(), D::fail(failing, kind));
    let ran = catch_unwind(AssertUnwindSafe(|| run_program(&*driver, seed, failing)));
    driver.over();
    let lacks = D::may_lack(failing);
    let wrong = match ran {
        Ok(Ok(Ran { is_stuck: true, .. })) if lacks == 0 => "a stream is captured for ever".to_owned(),
        Ok(Ok(ran)) => match lacking_since::<D>(before) {
            lacking if lacking <= lacks || ran.is_stuck => return Ok(ran),
            lacking => format!("the driver lacks {lacking} pieces of memory"),
        },
        Ok(Err(error)) => error.message().unwrap_or_default().to_owned(),
        Err(_) => panics::found().join("; "),
    };
    Err(format!("{failing:?} with {kind:?}: {wrong}").into())
}

fn run_program<D: Driver>(driver: &D, seed: u64, failing: Failing) -> Result<Ran, Failed> {
    let device = match open(driver, seed) {
        Ok(device) => device,
        Err(error) => {
            check_typed(failing, &error)?;
            return Ok(Ran { calls: driver.over(), is_stuck: false });
        }
    };
    let mut program = Program::run(device, seed, D::HAS_BYTES);
    let calls = driver.over();
    program.errors().iter().try_for_each(|error| check_typed(failing, error))?;
    if program.is_stuck() {
        return Ok(Ran { calls, is_stuck: true });
    }
    program.check()?;
    drop(program);
    check_all_back::<D>(device)?;
    // The device works again.
    let mut program = Program::run(device, seed + 1, D::HAS_BYTES);
    program.errors().iter().try_for_each(|error| check_typed(Failing::Nothing, error))?;
    program.check()?;
    drop(program);
    check_all_back::<D>(device)?;
    Ok(Ran { calls, is_stuck: false })
}

fn open<D: Driver>(driver: &D, seed: u64) -> Result<&'static Accelerator<D::Backend>, Error> {
    let device = Device { kind: D::Backend::KIND, index: 0 };
    let backend = driver.open().map_err(|source| Error::Driver { device, source })?;
    let config = AllocatorConfig::default().updated(program::settings(seed))?;
    Accelerator::new(backend, 0, config)
}

/// Checks that the error is one that a program can expect.
fn check_typed(failing: Failing, error: &Error) -> Outcome {
    match error {
        Error::OutOfMemory(_) | Error::HostOutOfMemory(_) | Error::MemPool { .. } => Ok(()),
        Error::Driver { source, .. } if source.kind == DriverErrorKind::OutOfMemory => Ok(()),
        // Of that call, or of a later one that suffers from its failure.
        Error::Driver { .. } if failing != Failing::Nothing => Ok(()),
        error => Err(format!("not an error to expect: {error:?}").into()),
    }
}

/// Checks that the driver has everything back.
fn check_all_back<D: Driver>(device: &'static Accelerator<D::Backend>) -> Outcome {
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?; // records events that the driver has refused to record
    device.synchronize()?;
    device.host_allocator().empty_cache()?;
    #[cfg(debug_assertions)]
    device.allocator().check();
    for (name, stat) in device.allocator().statistics().pool_stats() {
        assert_eq!(stat.all.current, 0, "{name}");
    }
    let host = device.host_allocator().statistics();
    assert_eq!((host.allocated_bytes.current, host.active_bytes.current), (0, 0), "pinned memory");
    assert_eq!(D::counted(device.backend()), [0; 2], "pieces of memory, and misuses");
    Ok(())
}
