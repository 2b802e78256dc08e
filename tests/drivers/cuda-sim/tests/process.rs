//! What concerns a whole process: its environment, its first calls, its forked children. Each test runs in its own
//! process.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::process::Command;

use common::*;

/// Runs the body of the test `test` in a process with only these settings. Returns false inside that process.
fn alone(test: &str, settings: &[(&str, &str)], body: fn()) -> bool {
    const CHILD: &str = "CUDA_SIM_TEST";
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        body();
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.to_string_lossy().starts_with("CUDA_")) {
        command.env_remove(name);
    }
    command.args(["--exact", test, "--nocapture"]).env(CHILD, test).envs(settings.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// Returns the text that a call writes.
fn text(call: impl FnOnce(*mut c_char, i32) -> i32) -> String {
    let mut place = [0u8; 64];
    assert_eq!(call(place.as_mut_ptr().cast(), 64), 0);
    CStr::from_bytes_until_nul(&place).unwrap().to_str().unwrap().to_owned()
}

fn name(device: i32) -> String {
    // SAFETY: there is room for that many bytes.
    text(|place, length| unsafe { cuda_sim::cuDeviceGetName(place, length, device) })
}

fn pci_address(device: i32) -> String {
    // SAFETY: there is room for that many bytes.
    text(|place, length| unsafe { cuda_sim::cuDeviceGetPCIBusId(place, length, device) })
}

fn uuid(device: i32) -> [u8; 16] {
    let mut uuid = MaybeUninit::zeroed();
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuda_sim::cuDeviceGetUuid_v2(Some(&mut uuid), device) }, 0);
    // SAFETY: zeroed first, then written.
    unsafe { uuid.assume_init() }
}

fn driver_version() -> i32 {
    let mut version = MaybeUninit::zeroed();
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuda_sim::cuDriverGetVersion(Some(&mut version)) }, 0);
    // SAFETY: zeroed first, then written.
    unsafe { version.assume_init() }
}

#[test]
fn nothing_works_before_the_first_call_and_without_a_context() {
    alone("nothing_works_before_the_first_call_and_without_a_context", &[], || {
        assert_eq!(driver_version(), if cfg!(feature = "old-driver") { 10_000 } else { 13_000 });
        assert_eq!([device_count(), attribute(75, 0)], [Err(3); 2]);
        assert_eq!([alloc(1).map(drop), synchronize(), set_current(0), query_event(7)], [Err(3); 4]);
        init().unwrap();
        assert_eq!(device_count(), Ok(1));
        assert_eq!([alloc(1).map(drop), synchronize(), stream(0).map(drop), query_event(7)], [Err(201); 4]);
        assert_eq!(set_current(7), Err(201));
        assert_eq!(cuda_sim::cuda_sim_contexts_made(0), 0);
        use_device(0);
        assert_eq!(cuda_sim::cuda_sim_contexts_made(0), 1);
        assert_eq!([query_event(7), query_stream(7), record(7, 0)], [Err(400); 3]);
        assert_eq!(memory(), (16 << 30, 16 << 30));
        assert_eq!(
            [attribute(75, 0), attribute(41, 0), attribute(75, 1), attribute(0, 0)],
            [Ok(9), Ok(1), Err(101), Err(1)]
        );
    });
}

#[test]
fn the_last_release_takes_everything_with_it() {
    alone("the_last_release_takes_everything_with_it", &[("CUDA_SIM_MEMORY", "1M")], || {
        init().unwrap();
        let context = use_device(0);
        retain(0).unwrap();
        let (a, own, end) = (alloc(1 << 20).unwrap(), stream(0).unwrap(), event(0).unwrap());
        release(0).unwrap();
        let pinned = alloc_pinned(1, 0).unwrap();
        fill(a, 1, 1 << 20, own).unwrap();
        copy_async(pinned, a, 1, own).unwrap();
        release(0).unwrap();
        assert_eq!(pinned_byte(pinned), 1, "the release waited for the work");
        assert_eq!(release(0), Err(201));
        assert_eq!([synchronize(), query_event(end)], [Err(709); 2], "the context is gone");
        assert_eq!(set_current(context), Err(201));
        use_device(0);
        assert_eq!([query_event(end), query_stream(own)], [Err(400); 2]);
        assert_eq!(cuda_sim::cuda_sim_contexts_made(0), 2);
        let b = alloc(1 << 20).unwrap();
        assert_ne!(a, b);
        assert_eq!((free(a), cuda_sim::cuda_sim_violations()), (Err(1), 0));
    });
}

#[test]
fn settings_are_followed() {
    let settings = [
        ("CUDA_SIM_DEVICES", "3"),
        ("CUDA_SIM_MEMORY", "3M"),
        ("CUDA_SIM_HOST_MEMORY", "1K"),
        ("CUDA_SIM_DRIVER_VERSION", "12080"),
        ("CUDA_SIM_CAPABILITY", "8.6"),
        ("CUDA_SIM_PEERS", "1"),
    ];
    alone("settings_are_followed", &settings, || {
        init().unwrap();
        use_device(1);
        assert_eq!((device_count(), memory()), (Ok(3), (3 << 20, 3 << 20)));
        assert_eq!([alloc_pinned(1025, 0), alloc((3 << 20) + 1)], [Err(2); 2]);
        alloc_pinned(1024, 0).unwrap();
        assert_eq!((driver_version(), attribute(75, 2), attribute(76, 0)), (12_080, Ok(8), Ok(6)));
        let numbers: Vec<_> = (0..3).map(|device| (name(device), pci_address(device), uuid(device)[15])).collect();
        let expected =
            |number: u8| (format!("Simulated CUDA device {number}"), format!("000A:{:02X}:03.0", 16 + number), number);
        assert_eq!(numbers, [0, 1, 2].map(expected));
        assert_eq!([50, 33, 34].map(|part| attribute(part, 2)), [Ok(10), Ok(18), Ok(3)]);
        let [first, second] = [0, 2].map(|device| retain(device).unwrap());
        enable_peer(first, 0).unwrap();
        assert_eq!([enable_peer(first, 0), enable_peer(second, 0)], [Err(704), Err(711)]);
        disable_peer(first).unwrap();
        enable_peer(second, 0).unwrap();
        // A short buffer truncates a name. An address fails instead.
        let mut place = [1u8; 8];
        // SAFETY: there is room for that many bytes.
        assert_eq!(unsafe { cuda_sim::cuDeviceGetName(place.as_mut_ptr().cast(), 8, 0) }, 0);
        assert_eq!(place, *b"Simulat\0");
        // SAFETY: there is room for that many bytes.
        assert_eq!(unsafe { cuda_sim::cuDeviceGetPCIBusId(place.as_mut_ptr().cast(), 8, 0) }, 1);
    });
}

#[test]
fn visible_devices_are_chosen() {
    let settings =
        [("CUDA_SIM_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", "3,GPU-5cda5130-0000-4000-8000-000000000001,9,0")];
    alone("visible_devices_are_chosen", &settings, || {
        init().unwrap();
        assert_eq!(device_count(), Ok(2));
        assert_eq!([name(0), name(1)], ["Simulated CUDA device 3", "Simulated CUDA device 1"]);
        assert_eq!(retain(2), Err(101));
    });
}

#[test]
fn a_process_may_see_no_device() {
    for settings in [[("CUDA_VISIBLE_DEVICES", "")], [("CUDA_SIM_DEVICES", "0")]] {
        alone("a_process_may_see_no_device", &settings, || {
            assert_eq!([init(), init()], [Err(100); 2]);
            assert_eq!(device_count(), Err(3));
        });
    }
}

#[test]
fn an_invalid_setting_is_not_ignored() {
    for settings in [[("CUDA_SIM_MEMORY", "much")], [("CUDA_SIM_FAIL", "cuMemAlloc_v2@0=2")]] {
        alone("an_invalid_setting_is_not_ignored", &settings, || assert_eq!(init(), Err(999)));
    }
}

#[test]
fn calls_fail_as_the_environment_plans() {
    let settings = [("CUDA_SIM_FAIL", "cuMemAlloc_v2@3=2,cuEventCreate@*=46"), ("CUDA_SIM_FAIL_AT", "10=700")];
    alone("calls_fail_as_the_environment_plans", &settings, || {
        init().unwrap();
        use_device(0); // the second and the third call
        assert!([4, 5, 6].map(|_| alloc(1).err()) == [None, None, Some(2)]);
        assert_eq!([event(0), event(0)], [Err(46); 2]);
        alloc(1).unwrap();
        assert_eq!(synchronize(), Err(700), "the tenth");
        assert_eq!([alloc(1), stream(0).map(|stream| stream as u64)], [Err(700); 2], "and the failure is permanent");
        assert_eq!((cuda_sim::cuda_sim_calls(), calls_of("cuMemAlloc_v2")), (12, 5));
        assert_eq!(cuda_sim::cuda_sim_violations(), 0);
    });
}

#[test]
fn calls_fail_as_a_test_plans() {
    let _driver = Exclusive::new();
    let a = alloc(8).unwrap();
    let live = cuda_sim::cuda_sim_live_allocations();
    fail("cuMemFree_v2", 2, 999);
    let b = alloc(8).unwrap();
    assert_eq!([free(a), free(b), free(b)], [Ok(()), Err(999), Ok(())]);
    assert_eq!(cuda_sim::cuda_sim_live_allocations(), live - 1);
    fail("cuMemAlloc_v2", 0, 2);
    assert_eq!([alloc(8), alloc(8)], [Err(2); 2]);
    assert_eq!(cuda_sim::cuda_sim_clear_faults(), 1);
    cuda_sim::cuda_sim_fail_at(2, 46);
    let c = alloc(8).unwrap();
    assert_eq!(free(c), Err(46));
    free(c).unwrap();
    assert_eq!(cuda_sim::cuda_sim_live_allocations(), live - 1);
}

#[test]
fn each_call_is_logged() {
    let path = std::env::temp_dir().join(format!("cuda-sim-log-{}", std::process::id()));
    let settings = [("CUDA_SIM_LOG", path.to_str().unwrap())];
    let finished = alone("each_call_is_logged", &settings, || {
        init().unwrap();
        assert_eq!(alloc(16), Err(201));
    });
    if finished {
        let log = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let calls: Vec<_> = log.lines().map(|line| line.split_once(" cu").unwrap().1).collect();
        let last = calls[1].starts_with("MemAlloc_v2(") && calls[1].ends_with(", 10) = 201 CUDA_ERROR_INVALID_CONTEXT");
        assert!(calls.len() == 2 && calls[0] == "Init(0,) = 0 CUDA_SUCCESS" && last, "{log}");
    }
}

#[test]
fn a_forked_child_has_no_driver() {
    alone("a_forked_child_has_no_driver", &[], || {
        init().unwrap();
        use_device(0);
        let a = alloc(1).unwrap();
        // SAFETY: the child only calls the driver, which takes no lock in it, and exits immediately.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = [init(), free(a), synchronize(), set_current(0), device_count().map(drop)];
            let exit = if refused == [Err(3); 5] { 0 } else { 1 };
            // SAFETY: exits the child without running the parent's remaining code.
            unsafe { libc::_exit(exit) };
        }
        let mut status = -1;
        // SAFETY: the place is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        free(a).unwrap();
    });
}

#[test]
fn codes_have_names_and_texts() {
    let _driver = Exclusive::new();
    let ask = |code: i32, call: unsafe extern "C" fn(i32, cuda_sim::Out<'_, *const c_char>) -> i32| {
        let mut place = MaybeUninit::new(std::ptr::null());
        // SAFETY: the place is valid.
        let outcome = unsafe { call(code, Some(&mut place)) };
        // SAFETY: it was initialized to null.
        let found = unsafe { place.assume_init() };
        // SAFETY: the driver's strings are static.
        let text = (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) });
        (outcome, text.map(|text| text.to_str().unwrap().to_owned()))
    };
    let known = |text: &str| (0, Some(text.to_owned()));
    assert_eq!(ask(0, cuda_sim::cuGetErrorName), known("CUDA_SUCCESS"));
    assert_eq!(ask(700, cuda_sim::cuGetErrorName), known("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(ask(2, cuda_sim::cuGetErrorString), known("out of memory"));
    assert_eq!([ask(12_345, cuda_sim::cuGetErrorName), ask(-1, cuda_sim::cuGetErrorString)], [(1, None), (1, None)]);
}
