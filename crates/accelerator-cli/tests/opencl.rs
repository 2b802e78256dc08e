//! `accel` with the OpenCL drivers of the machine.
#![allow(clippy::unwrap_used, reason = "a test stops at anything unexpected")]

#[path = "program/accel.rs"]
#[allow(dead_code, reason = "the other target uses more of it")]
mod accel;

use accel::{CONFORMANCE, Ended, INFO, accel_with_drivers, file};
use accelerator_conformance::unavailable;
use libtest_mimic::{Arguments, Completion, Trial};

fn main() {
    let trials = vec![
        trial("a_list_that_means_no_device_is_told", no_such_device),
        trial("a_platform_without_a_device_is_told", platform_without_device),
        trial("replays_as_on_the_simulated_device", replays_agree),
        trial("a_conformance_case_passes", conformance),
        trial("a_report_holds", report),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Returns a trial that receives the output of `accel info` for OpenCL. Without devices it is ignored, or fails if
/// `ACCELERATOR_REQUIRE` lists `opencl`.
fn trial(name: &str, run: fn(&str) -> Completion) -> Trial {
    Trial::ignorable_test(name, move || {
        let devices = Ended::of(accel_with_drivers(&INFO).output()?).out;
        match devices.trim().strip_prefix("opencl is not available: ") {
            None => Ok(run(&devices)),
            Some(why) => Ok(Completion::ignored_with(unavailable("opencl", why)?)),
        }
    })
}

fn no_such_device(_devices: &str) -> Completion {
    let mut command = accel_with_drivers(&INFO);
    let ended = Ended::of(command.env("ACCELERATOR_OPENCL_DEVICES", "no such device").output().unwrap());
    let text = "opencl is not available: ACCELERATOR_OPENCL_DEVICES is `no such device`";
    assert!(ended.status == Some(0) && ended.out.starts_with(text), "{}", ended.out);
    Completion::Completed
}

/// Tests only PoCL, since other drivers cannot be configured to have no device.
fn platform_without_device(devices: &str) -> Completion {
    const PLATFORM: &str = "Portable Computing Language";
    if !devices.lines().filter(|line| line.contains("opencl:")).all(|row| row.contains(PLATFORM)) {
        return Completion::ignored_with("PoCL is not the only driver");
    }
    let ended = Ended::of(accel_with_drivers(&INFO).env("POCL_DEVICES", "none").output().unwrap());
    let text = format!("opencl is not available: the platform `{PLATFORM}` has no device\n");
    assert_eq!((ended.status, ended.out), (Some(0), text));
    Completion::Completed
}

fn replays_agree(_devices: &str) -> Completion {
    let trace = file(
        "opencl-agrees.trace",
        b"capacity 268435456\nhold 1\nalloc 1 7000000 0\nrecord 1 1\nfree 1\nalloc 2 7000000 0\nstats\nrelease 1\n\
        alloc 3 7000000 0\nfree 2\nfree 3\nstats\nfail_mallocs 2\nalloc 4 99000000 2\nstats\nalloc 5 300000000 0\n\
        alloc 6 200000000 3\nalloc 7 60000000 3\nstats\nfree 6\nempty_cache\nstats\n",
    );
    let replay = |backend| {
        let mut command = accel_with_drivers(&["replay", "--plain", "--backend", backend]);
        let ended = Ended::of(command.arg(&trace).output().unwrap());
        assert_eq!(ended.status, Some(0), "{}", ended.error);
        ended.out
    };
    let (opencl, sim) = (replay("opencl"), replay("sim"));
    assert_eq!(sim.matches(" stats\n").count(), 5, "{sim}");
    assert!(sim.contains("oom 4\n") && sim.contains("oom 5\n"), "{sim}");
    assert_eq!(opencl, sim);
    Completion::Completed
}

fn conformance(_devices: &str) -> Completion {
    let passed = Ended::of(accel_with_drivers(&CONFORMANCE).output().unwrap());
    assert_eq!(passed.status, Some(0), "{}", passed.error);
    assert!(passed.out.contains("1 passed; 0 failed; 0 ignored"), "{}", passed.out);
    Completion::Completed
}

fn report(devices: &str) -> Completion {
    let told = Ended::of(accel_with_drivers(&["verify", "--backend", "opencl", "--quick"]).output().unwrap());
    assert_eq!(told.status, Some(0), "{}{}", told.error, told.out);
    let title = told.out.lines().next().unwrap();
    let name = title.strip_prefix("# accel verify on opencl:0 (").and_then(|rest| rest.strip_suffix("): all passed"));
    assert!(name.is_some_and(|name| devices.contains(name)), "{title}\n{devices}");
    assert_eq!(told.out.matches("\n## ").count(), told.out.matches(": passed\n").count(), "{}", told.out);
    Completion::Completed
}
