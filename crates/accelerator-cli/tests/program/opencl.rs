//! `accel` with OpenCL: without a driver, with a broken one, and with those of the machine.

use std::env;
use std::io::{Write, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::accel::{Ended, accel, accel_with_drivers, file, folder, run};

const INFO: [&str; 3] = ["info", "--backend", "opencl"];
const CONFORMANCE: [&str; 4] = ["conformance", "--backend", "opencl", "B17"];

/// Whether the text tells why there is no driver: the loader found none, or there is no loader.
fn tells_why(text: &str) -> bool {
    text.contains("the OpenCL loader found no platform: install a driver")
        || text.contains("there is no OpenCL loader")
}

/// What `accel info` prints where the loader looks for drivers in this folder.
#[track_caller]
fn info(arguments: &[&str], vendors: &Path) -> String {
    let started = Instant::now();
    let ended = Ended::of(accel(arguments).env("OCL_ICD_VENDORS", vendors).output().unwrap());
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""), "{}", ended.out);
    ended.out
}

#[track_caller]
fn has_no_driver(vendors: &Path) {
    let alone = info(&INFO, vendors);
    assert!(alone.starts_with("opencl is not available: ") && tells_why(&alone), "{alone}");
    assert_eq!(alone.lines().count(), 1, "{alone}");
    let all = info(&["info"], vendors);
    assert!(all.contains(&alone) && all.contains("host:0"), "{all}");
}

#[test]
fn without_a_driver_info_says_why() {
    has_no_driver(&folder("no-opencl-drivers"));
    has_no_driver(Path::new("/no/such/folder"));
}

#[test]
fn broken_driver_files_are_no_drivers() {
    let text = file("text.so", b"this is no library\n");
    for (name, driver) in [
        ("driver-that-is-missing", "/no/such/libdriver.so\n"),
        ("driver-that-is-no-library", text.to_str().unwrap()),
        ("driver-that-is-no-opencl", "libc.so.6"),
        ("driver-without-a-name", "\n"),
    ] {
        let vendors = folder(name);
        std::fs::write(vendors.join("broken.icd"), driver).unwrap();
        has_no_driver(&vendors);
    }
}

#[test]
fn without_a_device_replay_fails_and_conformance_is_ignored() {
    let refused = run(&["replay", "--backend", "opencl"]);
    refused.fails(1, "accel: no accelerator is available: opencl: ");
    assert!(tells_why(&refused.error), "{}", refused.error);

    let ignored = run(&CONFORMANCE);
    assert_eq!(ignored.status, Some(0), "{}", ignored.error);
    assert!(
        ignored.out.contains("0 passed; 0 failed; 1 ignored") && tells_why(&ignored.out),
        "{}",
        ignored.out
    );

    let required = Ended::of(accel(&CONFORMANCE).env("ACCELERATOR_REQUIRE", "host,opencl").output().unwrap());
    assert_eq!(required.status, Some(101), "{}", required.out);
    let text = "ACCELERATOR_REQUIRE asks for `opencl`, which is not available: ";
    assert!(required.out.contains(text) && tells_why(&required.out), "{}", required.out);
}

#[test]
fn a_capacity_that_is_none_is_told() {
    let ended = Ended::of(accel(&INFO).env("ACCELERATOR_OPENCL_CAPACITY", "lots").output().unwrap());
    let text = "opencl is not available: ACCELERATOR_OPENCL_CAPACITY must be a size above 0, as 16GiB, but is \"lots\"\n";
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), text));
}

#[test]
fn a_list_that_means_no_device_is_told() {
    if drivers("a_list_that_means_no_device_is_told").is_some() {
        let mut command = accel_with_drivers(&INFO);
        let ended = Ended::of(command.env("ACCELERATOR_OPENCL_DEVICES", "no such device").output().unwrap());
        let text = "opencl is not available: ACCELERATOR_OPENCL_DEVICES is `no such device`";
        assert!(ended.status == Some(0) && ended.out.starts_with(text), "{}", ended.out);
    }
}

/// PoCL can be told to have no device, so this is tested with that alone.
#[test]
fn a_platform_without_a_device_is_told() {
    const PLATFORM: &str = "Portable Computing Language";
    let Some(devices) = drivers("a_platform_without_a_device_is_told") else { return };
    let mut rows = devices.lines().filter(|line| line.contains("opencl:"));
    if !rows.all(|row| row.contains(PLATFORM)) {
        return skip("a_platform_without_a_device_is_told", "PoCL is not the only driver");
    }
    let ended = Ended::of(accel_with_drivers(&INFO).env("POCL_DEVICES", "none").output().unwrap());
    let text = format!("opencl is not available: the platform `{PLATFORM}` has no device\n");
    assert_eq!((ended.status, ended.out), (Some(0), text));
}

#[test]
fn opencl_and_simulation_agree() {
    if drivers("opencl_and_simulation_agree").is_none() {
        return;
    }
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
}

#[test]
fn a_conformance_case_passes_on_opencl() {
    if drivers("a_conformance_case_passes_on_opencl").is_some() {
        let passed = Ended::of(accel_with_drivers(&CONFORMANCE).output().unwrap());
        assert_eq!(passed.status, Some(0), "{}", passed.error);
        assert!(passed.out.contains("1 passed; 0 failed; 0 ignored"), "{}", passed.out);
    }
}

/// What `accel info` prints of OpenCL's devices. `None` skips the test, since there is none, which is a failure where
/// `ACCELERATOR_REQUIRE` lists `opencl`.
fn drivers(test: &str) -> Option<String> {
    let devices = Ended::of(accel_with_drivers(&INFO).output().unwrap()).out;
    if devices.contains("opencl:0") {
        return Some(devices);
    }
    let required = env::var("ACCELERATOR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "opencl"), "ACCELERATOR_REQUIRE: {devices}");
    skip(test, devices.trim());
    None
}

/// Tells why, past the harness, which would keep it to itself.
fn skip(test: &str, reason: &str) {
    stderr().write_all(format!("skipped {test}: {reason}\n").as_bytes()).unwrap();
}
