use std::error::Error as _;

use super::*;
use crate::types::{DriverErrorKind, OutOfMemoryCause};

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
        reserved: 0,
        free_in_pools: 0,
        largest_cached: 0,
        advice: Vec::new(),
    }
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
fn errors() -> [(Error, &'static str); 20] {
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
            Error::MemPool { device: HOST, pool: MemPoolId::new(0, 3), problem: "does not exist" },
            "host:0: memory pool 0_3 does not exist"
        ),
        Error::PoolFile { .. } => (
            Error::PoolFile {
                device: HOST,
                pool: MemPoolId::new(0, 3),
                path: "contents".into(),
                error: std::io::ErrorKind::AlreadyExists.into(),
            },
            "host:0: memory pool 0_3: contents: entity already exists"
        ),
        Error::Graph { .. } => (Error::Graph { device: CUDA, problem: "is empty" }, "cuda:1: the graph is empty"),
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
