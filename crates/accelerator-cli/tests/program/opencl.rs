//! `accel` with OpenCL if there is no driver, or a broken one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::accel::{CONFORMANCE, Ended, INFO, accel, file, folder, run};

/// Returns whether the text says why there is no driver: the loader found none, or there is no loader.
fn tells_why(text: &str) -> bool {
    text.contains("the OpenCL loader found no platform: install a driver") || text.contains("there is no OpenCL loader")
}

/// Returns the output of `accel info` if the loader looks for drivers in this folder.
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
    assert!(ignored.out.contains("0 passed; 0 failed; 1 ignored") && tells_why(&ignored.out), "{}", ignored.out);

    let required = Ended::of(accel(&CONFORMANCE).env("ACCELERATOR_REQUIRE", "host,opencl").output().unwrap());
    assert_eq!(required.status, Some(101), "{}", required.out);
    let text = "ACCELERATOR_REQUIRE asks for `opencl`, which is not available: ";
    assert!(required.out.contains(text) && tells_why(&required.out), "{}", required.out);
}

#[test]
fn an_invalid_capacity_is_reported() {
    let ended = Ended::of(accel(&INFO).env("ACCELERATOR_OPENCL_CAPACITY", "lots").output().unwrap());
    let text = "opencl is not available: ACCELERATOR_OPENCL_CAPACITY must be a size above 0, such as 16GiB, but \
                is \"lots\"\n";
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), text));
}
