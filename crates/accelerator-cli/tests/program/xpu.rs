//! `accel` with Level Zero if there is no driver.

use std::time::{Duration, Instant};

use crate::accel::{Ended, accel, run};

const CONFORMANCE: [&str; 4] = ["conformance", "--backend", "xpu", "B17"];

/// Part of the backend's message if there is no loader, or no driver for it.
const WHY: &str = "install the loader";

#[test]
fn without_a_driver_info_says_why() {
    let started = Instant::now();
    let alone = run(&["info", "--backend", "xpu"]);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((alone.status, alone.error.as_str()), (Some(0), ""), "{}", alone.out);
    assert!(alone.out.starts_with("xpu is not available: ") && alone.out.contains(WHY), "{}", alone.out);
    assert_eq!(alone.out.lines().count(), 1, "{}", alone.out);
    assert!(run(&["info"]).out.contains(&alone.out));
}

#[test]
fn without_a_device_replay_fails_and_conformance_is_ignored() {
    let refused = run(&["replay", "--backend", "xpu"]);
    refused.fails(1, "accel: no accelerator is available: xpu: ");
    assert!(refused.error.contains(WHY), "{}", refused.error);

    let ignored = run(&CONFORMANCE);
    assert_eq!(ignored.status, Some(0), "{}", ignored.error);
    assert!(ignored.out.contains("0 passed; 0 failed; 1 ignored") && ignored.out.contains(WHY), "{}", ignored.out);

    let required = Ended::of(accel(&CONFORMANCE).env("ACCELERATOR_REQUIRE", "xpu").output().unwrap());
    assert_eq!(required.status, Some(101), "{}", required.out);
    let text = "ACCELERATOR_REQUIRE asks for `xpu`, which is not available: ";
    assert!(required.out.contains(text), "{}", required.out);
}
