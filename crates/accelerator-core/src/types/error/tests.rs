use std::error::Error as _;

use super::*;
use crate::types::{DriverErrorKind, MIB, MemPoolInfo, OutOfMemoryCause};

const HOST: Device = Device { kind: DeviceKind::new("host"), index: 0 };
const CUDA: Device = Device { kind: DeviceKind::new("cuda"), index: 1 };
const DRIVER: DriverError =
    DriverError { kind: DriverErrorKind::Other, call: "cuMemAlloc", code: 999, name: "CUDA_ERROR_UNKNOWN" };

fn out_of_memory() -> OutOfMemory {
    OutOfMemory {
        device: HOST,
        requested: 100,
        segment: 0,
        cause: OutOfMemoryCause::Device,
        total: None,
        free: None,
        allowed: None,
        allocated: 0,
        allocated_in_pools: 0,
        pending: 0,
        rounding: 0,
        reserved: 0,
        in_pieces: 0,
        free_in_pools: 0,
        paused: 0,
        pools: Default::default(),
        largest_cached: 0,
        advice: Vec::new(),
    }
}

#[test]
fn an_out_of_memory_error_tells_which_pools_hold_memory_and_which_are_paused() {
    let pool = |name: Option<&str>, reserved, paused| MemPoolInfo {
        name: name.map(Into::into),
        reserved_bytes: reserved * MIB,
        paused_bytes: paused * MIB,
    };
    let mut report = out_of_memory();
    assert!(!report.to_string().contains("ools"), "{report}");
    let some = [pool(Some("weights"), 20, 20), pool(None, 2, 0), pool(Some("kv_cache"), 4, 0), pool(None, 0, 0)];
    report.pools = (1..).map(|number| MemPoolId::new(0, number)).zip(some).collect();
    let told = " Private pools hold 4.00 MiB in kv_cache (0_3), 2.00 MiB in 0_2. \
                Paused, and so not held, are 20.00 MiB in weights (0_1).";
    assert!(report.to_string().ends_with(told), "{report}");
    report.pools = (1..8).map(|number| (MemPoolId::new(number, 0), pool(None, number, 0))).collect();
    let told = "hold 7.00 MiB in 7_0, 6.00 MiB in 6_0, 5.00 MiB in 5_0, 4.00 MiB in 4_0, 3.00 MiB in 3_0, \
                3.00 MiB in 2 others.";
    assert!(report.to_string().ends_with(told), "{report}");
}

fn host_out_of_memory() -> HostOutOfMemory {
    HostOutOfMemory {
        device: HOST,
        requested: 100,
        block: Some(128),
        driver: Some(DRIVER),
        active: 0,
        cached: 0,
        advice: Vec::new(),
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Makes a list of errors. A variant without an error in the list does not compile.
macro_rules! one_of_each_variant {
    ($($variant:pat => ($error:expr, $expected:expr),)*) => {{
        let _every_variant = |error: &Error| match error { $($variant => {})* };
        [$({
            let error = $error;
            assert!(matches!(error, $variant), "not the variant that it stands for: {error}");
            (error, $expected)
        }),*]
    }};
}

/// One of each variant, and what a person must find in its message.
fn errors() -> [(Error, &'static str); 21] {
    one_of_each_variant! {
        Error::OutOfMemory(_) => (
            Error::OutOfMemory(Box::new(out_of_memory())),
            "host:0 out of memory: tried to allocate 100 bytes"
        ),
        Error::HostOutOfMemory(_) => (
            Error::HostOutOfMemory(Box::new(host_out_of_memory())),
            "host:0: out of pinned host memory"
        ),
        Error::Driver { .. } => (
            Error::Driver { device: CUDA, source: DRIVER },
            "cuda:1: cuMemAlloc failed: CUDA_ERROR_UNKNOWN"
        ),
        Error::NoAccelerator { .. } => (
            Error::NoAccelerator { reasons: text("cuda: no driver") },
            "no accelerator is available: cuda: no"
        ),
        Error::UnknownBackend { .. } => (
            Error::UnknownBackend { name: text("x"), given_by: "f", known: text("host") },
            "`x`"
        ),
        Error::InvalidDevice { .. } => (
            Error::InvalidDevice { kind: DeviceKind::new("host"), index: 7, count: 1 },
            "host device 7 does not exist"
        ),
        Error::InvalidDeviceName { .. } => (Error::InvalidDeviceName { text: text("a:b:c") }, "`a:b:c`"),
        Error::DeviceIndexRequired { .. } => (
            Error::DeviceIndexRequired { kind: DeviceKind::new("host"), given: text("None") },
            "such as 1 or `host:1`, but `None` was given"
        ),
        Error::DeviceKindMismatch { .. } => (
            Error::DeviceKindMismatch { expected: DeviceKind::new("host"), found: text("cuda") },
            "the current accelerator is host"
        ),
        Error::DeviceMismatch { .. } => (
            Error::DeviceMismatch { what: "the stream", expected: HOST, found: CUDA },
            "the stream belongs to cuda:1"
        ),
        Error::UnknownStream { .. } => (
            Error::UnknownStream { device: HOST, stream: StreamId::new(9) },
            "host:0 has no stream 9"
        ),
        Error::UnknownPointer { .. } => (Error::UnknownPointer { device: HOST, address: 0xab }, "0xab"),
        Error::MemPool { .. } => (
            Error::MemPool { device: HOST, pool: MemPoolId::new(0, 3), name: None, problem: "does not exist" },
            "host:0: memory pool 0_3 does not exist"
        ),
        Error::PoolFile(_) => (
            Error::PoolFile(Box::new(PoolFileError {
                device: HOST,
                pool: MemPoolId::new(0, 3),
                name: Some("weights".into()),
                path: "contents".into(),
                error: std::io::ErrorKind::AlreadyExists.into(),
            })),
            "host:0: memory pool weights (0_3): contents: entity already exists"
        ),
        Error::Graph { .. } => (Error::Graph { device: CUDA, problem: "is empty" }, "cuda:1: the graph is empty"),
        Error::Sharing { .. } => (
            Error::Sharing { device: CUDA, problem: SharingProblem::NotAHandle },
            "cuda:1: these bytes are not a handle of shared memory: pass on exactly the bytes of the handle"
        ),
        Error::InvalidFraction(_) => (Error::InvalidFraction(1.5), "1.5"),
        Error::InvalidSetting { .. } => (
            Error::InvalidSetting { variable: Some("V"), settings: text("a:1"), reason: text("unknown key") },
            "`a:1` in the environment variable V: unknown key"
        ),
        Error::OutOfBounds { .. } => (Error::OutOfBounds { offset: 4, len: 8, size: 10 }, "10 bytes"),
        Error::ElementSize { .. } => (Error::ElementSize { size: 10, element: 4 }, "10 bytes"),
        Error::ElapsedTime(_) => (Error::ElapsedTime("no timing"), "no timing"),
    }
}

/// Rust prints the `Debug` of an error that `main` returns.
#[test]
fn an_error_that_main_returns_shows_its_message_with_its_causes() {
    for (error, expected) in errors() {
        let shown = format!("{error:?}");
        assert_eq!(shown, error.to_string());
        assert!(shown.contains(expected), "expected `{expected}` in: {shown}");
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        for cause in causes.map(ToString::to_string) {
            assert!(shown.contains(&cause), "expected `{cause}` in: {shown}");
        }
    }
    for (shown, message) in [
        (format!("{:?}", out_of_memory()), out_of_memory().to_string()),
        (format!("{:?}", host_out_of_memory()), host_out_of_memory().to_string()),
        (format!("{DRIVER:?}"), DRIVER.to_string()),
        (format!("{:?}", Unavailable { reason: text("no driver") }), text("no driver")),
    ] {
        assert_eq!(shown, message);
    }
}
