//! Makes each driver call of a program fail in turn. The error must be typed and name the call, and nothing may be
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::{env, fs};

use accelerator_core::{Accelerator, Backend, Device, DriverError, DriverErrorKind, Error, MIB};
use accelerator_xpu::sys::ze_result_t;
use accelerator_xpu::{Argument, Xpu};
use libtest_mimic::{Failed, Trial};

use crate::control::{self, LOST, OUT_OF_MEMORY, REFUSED};
use crate::failing;
use crate::native::SPIRV;
use crate::programs::everything::{opened_and_worked, pools_graphs_and_pauses, something_of_everything};
use crate::programs::failing::InDriver;
use crate::programs::long;
use crate::programs::process;
use crate::rig::{self, Outcome, check_all_gone, simulated, unchecked};
use crate::suite;
use crate::whole;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("every_call::refuses", REFUSES, || in_turn(REFUSED, work)),
        simulated("every_call::is_out_of_memory", IS_OUT_OF_MEMORY, || in_turn(OUT_OF_MEMORY, work)),
        simulated("every_call::loses_the_device", LOSES, || in_turn(LOST, work)),
        unchecked("every_call::of_pools_refuses", POOLS_REFUSE, || in_turn(REFUSED, pools_graphs_and_pauses)),
        unchecked("every_call::of_pools_is_out_of_memory", POOLS_ARE_OUT_OF_MEMORY, || {
            in_turn(OUT_OF_MEMORY, pools_graphs_and_pauses)
        }),
        unchecked("every_call::of_pools_loses_the_device", POOLS_LOSE, || in_turn(LOST, pools_graphs_and_pauses)),
        unchecked("every_call::of_the_backend_refuses", BACKEND_REFUSES, || of_the_backend(REFUSED)),
        unchecked("every_call::of_the_backend_is_out_of_memory", BACKEND_IS_OUT, || of_the_backend(OUT_OF_MEMORY)),
        unchecked("every_call::of_the_backend_loses_the_device", BACKEND_LOSES, || of_the_backend(LOST)),
        unchecked("every_call::is_made", BACKEND_WHOLE, is_made),
        unchecked("every_call::of_random_programs", RANDOM, random_programs),
        long(unchecked("every_call::of_conformance", CONFORMANCE, conformance)),
        simulated("every_call::is_let_through_by_the_checks", LET_THROUGH, is_let_through),
    ]
}

/// The log of calls, in the folder where trials run.
const LOG: &str = "ZE_SIM_LOG";
const MEMORY: (&str, &str) = ("ZE_SIM_MEMORY", "256M");
const CAPACITY: u64 = 256 * MIB;
const HOST_MEMORY: (&str, &str) = ("ZE_SIM_HOST_MEMORY", "8M");
const REFUSES: &[(&str, &str)] = &[MEMORY, HOST_MEMORY, (LOG, "xpu-refuses.log")];
const IS_OUT_OF_MEMORY: &[(&str, &str)] = &[MEMORY, HOST_MEMORY, (LOG, "xpu-is-out-of-memory.log")];
const POOLS_REFUSE: &[(&str, &str)] = &[MEMORY, HOST_MEMORY, (LOG, "xpu-pools-refuse.log")];
const POOLS_ARE_OUT_OF_MEMORY: &[(&str, &str)] = &[MEMORY, HOST_MEMORY, (LOG, "xpu-pools-are-out-of-memory.log")];
const POOLS_LOSE: &[(&str, &str)] = &[MEMORY, (LOG, "xpu-pools-lose.log")];
const LOSES: &[(&str, &str)] = &[MEMORY, (LOG, "xpu-loses.log")];
const LET_THROUGH: &[(&str, &str)] = &[MEMORY, HOST_MEMORY, (LOG, "xpu-let-through.log")];
const RANDOM: &[(&str, &str)] = &[MEMORY, ("ZE_SIM_HOST_MEMORY", "64M")];
/// The suite compares elapsed time with the host's clock.
const CONFORMANCE: &[(&str, &str)] = &[("ZE_SIM_CLOCK", "real")];
const TWO: (&str, &str) = ("ZE_SIM_DEVICES", "2");
const SYSMAN: (&str, &str) = ("ZES_ENABLE_SYSMAN", "1");
const BACKEND_WHOLE: &[(&str, &str)] = &[TWO, SYSMAN];
const BACKEND_REFUSES: &[(&str, &str)] = &[TWO, SYSMAN, (LOG, "xpu-backend-refuses.log")];
const BACKEND_IS_OUT: &[(&str, &str)] = &[TWO, SYSMAN, (LOG, "xpu-backend-is-out-of-memory.log")];
const BACKEND_LOSES: &[(&str, &str)] = &[TWO, SYSMAN, (LOG, "xpu-backend-loses.log")];

/// The reported errors, each with the numbers of the failed call and of the last call before the next attempt.
#[derive(Default)]
struct Told(Vec<(RangeInclusive<u64>, Error)>);

impl Told {
    /// Checks that each error comes from a call that the driver failed at the time: the injected one, or a later one if
    /// the injected one's result is optional but loses the device. Out-of-memory errors may use our own words.
    fn check(self, code: ze_result_t) -> Outcome {
        let failed = failed_calls(code)?;
        let kind = match code {
            OUT_OF_MEMORY => DriverErrorKind::OutOfMemory,
            LOST => DriverErrorKind::DeviceLost,
            _ => DriverErrorKind::InvalidArgument,
        };
        for (calls, error) in self.0 {
            let number = *calls.start();
            let name = failed.get(&number).ok_or("the call is not in the log")?;
            match error {
                Error::Driver { source: DriverError { call, code: told, kind: of, .. }, .. } => {
                    assert_eq!((told, of), (i64::from(code.0), kind), "call {number}, {name}");
                    let later = code == LOST && failed.range(calls).any(|(_, name)| call == name);
                    assert!(call == name || later, "call {number}, {name}: {call}");
                }
                Error::OutOfMemory(_) | Error::HostOutOfMemory { .. } if code == OUT_OF_MEMORY => {
                    assert!(name.starts_with("zeMemAlloc"), "call {number}, {name}: {error}");
                }
                other => return Err(format!("call {number}, {name}: {other}").into()),
            }
        }
        Ok(())
    }
}

/// Returns the calls in the simulated driver's log that returned this code, by number.
fn failed_calls(code: ze_result_t) -> Result<BTreeMap<u64, String>, Failed> {
    let (lines, answer) = (fs::read_to_string(env::var(LOG)?)?, format!(" = {:#x} ", code.0));
    let name = |line: &str| {
        let mut words = line.split(' ');
        let (number, mut rest) = (words.next()?.parse().ok()?, words.skip(2));
        Some((number, rest.next()?.split('(').next()?.to_owned()))
    };
    Ok(lines.lines().filter(|line| line.contains(&answer)).filter_map(name).collect())
}

/// Opens the loader and its drivers, which happens once per process and is not counted.
fn probed(count: u32) -> Outcome {
    if let Ok(log) = env::var(LOG) {
        let _ = fs::remove_file(log); // from an earlier run
    }
    assert_eq!(Xpu::probe()?, count);
    Ok(())
}

/// A program each of whose calls fails in turn.
type Work = fn(&'static Accelerator<Xpu>) -> Result<(), Error>;

/// Returns the number of calls that the program makes when none fail, without those of only its first run.
fn calls_of_all(work: Work) -> Result<u64, Failed> {
    let (worked, device) = opened_and_worked(work)?;
    worked?;
    check_all_gone(device)?;
    control::seed(0);
    let before = control::calls();
    let (worked, device) = opened_and_worked(work)?;
    worked?;
    let whole = control::calls() - before;
    check_all_gone(device)?;
    assert!(whole > 70, "the program makes only {whole} calls");
    Ok(whole)
}

fn random_programs() -> Outcome {
    failing::programs::<InDriver<Xpu>>("simulated::every_call::of_random_programs", 10, 2)
}

fn conformance() -> Outcome {
    failing::cases::<InDriver<Xpu>>("simulated::every_call::of_conformance", 1)
}

fn in_turn(code: ze_result_t, work: Work) -> Outcome {
    probed(1)?;
    let (whole, mut told) = (calls_of_all(work)?, Told::default());
    for call in 1..=whole {
        control::seed(0); // so that the calls are the same each time
        // Lost devices still hold memory: allocations, and pages.
        control::set_memory(0, CAPACITY + control::live_bytes() + control::live_physical() * 2 * MIB);
        let number = control::calls() + call;
        control::fail_at(call, code);
        let worked = opened_and_worked(work);
        assert_eq!(control::clear_faults(), 0, "call {call} was never made");
        let error = match worked {
            Err(refused) => Some(refused),
            Ok((result, _)) if code == LOST => result.err(),
            Ok((result, device)) => {
                check_all_gone(device)?;
                result.err()
            }
        };
        control::reset_lost();
        told.0.extend(error.map(|error| (number..=control::calls(), error)));
    }
    let most = if code == LOST { whole - 10 } else { 20 };
    assert!(told.0.len() as u64 > most, "only {} of {whole} failures were reported", told.0.len());
    told.check(code)
}

/// Uses a little of everything.
fn work(device: &'static Accelerator<Xpu>) -> Result<(), Error> {
    launch(device)?;
    something_of_everything(device)
}

fn launch(device: &'static Accelerator<Xpu>) -> Result<(), Error> {
    let (stream, of) = (device.default_stream(), device.device());
    let driver = |source| Error::Driver { device: of, source };
    let (mut x, mut y) = (device.allocate(400, stream)?, device.allocate(400, stream)?);
    x.slice_mut()?.write(&[4.0_f32; 100], stream)?;
    y.slice_mut()?.write(&[1.0_f32; 100], stream)?;
    // SAFETY: The example's kernel, which is valid.
    #[allow(unsafe_code)]
    let module = unsafe { device.backend().module(SPIRV, c"") };
    let mut kernel = module.map_err(|error| driver(error.source))?.kernel(c"saxpy").map_err(driver)?;
    let (n, a) = (100_u32, 2.0_f32);
    let arguments = [Argument::value(&n), Argument::value(&a), Argument::Buffer(&x), Argument::Buffer(&y)];
    // SAFETY: The arguments match the kernel, which accesses only the elements that the buffers have.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(stream, [1, 1, 1], [128, 1, 1], &arguments) }?;
    assert_eq!(y.slice::<f32>()?.to_vec(stream)?, [9.0; 100]);
    Ok(())
}

/// The backend alone, which a program may drop. Whatever fails, nothing is left.
fn of_the_backend(code: ze_result_t) -> Outcome {
    probed(2)?;
    whole::everything()?; // some loaders make extra calls the first time
    control::seed(0);
    let before = control::calls();
    whole::everything()?;
    let (calls, mut told) = (control::calls() - before, Told::default());
    assert_eq!(control::live(), []);
    for call in 1..=calls {
        control::seed(0); // so that the calls are the same each time
        let number = control::calls() + call;
        control::fail_at(call, code);
        let done = whole::everything();
        let was_made = control::clear_faults() == 0;
        match code {
            // A context with remains of a lost device is kept forever, and not created again.
            LOST => assert!(was_made || call + 2 > calls, "call {call} was never made"),
            _ => assert_eq!((was_made, control::live()), (true, vec![]), "call {call}: {done:?}"),
        }
        control::reset_lost();
        let device = Device { kind: Xpu::KIND, index: 0 };
        told.0.extend(done.err().map(|source| (number..=control::calls(), Error::Driver { device, source })));
    }
    assert!(told.0.len() > 100, "only {} of {calls} failures were reported", told.0.len());
    told.check(code)
}

/// These trials make every call that the backend may make.
fn is_made() -> Outcome {
    whole::everything()?;
    assert_eq!(control::live(), []);
    let newer = Xpu::open(0)?.level_zero().zesInit().is_ok();
    let all = suite::calls();
    assert!(
        suite::BEYOND.iter().all(|call| all.contains(*call)),
        "a function that the suite omits is no longer called"
    );
    let never: BTreeSet<_> = all.iter().filter(|call| control::calls_of(call) == 0).map(String::as_str).collect();
    // Loaders before 1.10 start drivers with one call, later ones with another. Those before 1.9.4 do not find devices
    // by UUID.
    let old = ["zeInitDrivers", "zesDeviceGet", "zesDeviceGetProperties", "zesDriverGet", "zesInit"];
    match newer {
        true => assert!(never.is_subset(&["zeInit", "zeDriverGet"].into()), "{never:?}"),
        false => assert_eq!(never, old.into()),
    }
    Ok(())
}

/// The loader's checks refuse faulty calls themselves, so the driver would see fewer calls.
fn is_let_through() -> Outcome {
    const EXPECTED: &str = "ACCELERATOR_XPU_CALLS";
    probed(1)?;
    let calls = calls_of_all(work)?;
    // Old loaders' checks wrongly refuse the probing of virtual memory. The program ran twice.
    let tries = (control::calls_of("zeVirtualMemReserve") + control::calls_of("zeVirtualMemFree")) / 2;
    if let Ok(expected) = env::var(EXPECTED) {
        assert_eq!(calls - tries, expected.parse::<u64>()?);
        return Ok(());
    }
    let unchecked = rig::CHECKS.map(|variable| (variable, "0"));
    process::again(&[unchecked.as_slice(), &[(EXPECTED, &(calls - tries).to_string())]].concat())
}
