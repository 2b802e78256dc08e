//! Failing calls and their aftermath.

use std::ops::RangeInclusive;

use accelerator_core::{DriverErrorKind, Error, MIB};

use super::process::Outcome;
use super::simulated::{Simulated, check_all_gone, device};

/// Runs on a host that can pin 64 MiB.
pub(crate) fn out_of_host_memory<B: Simulated>() -> Outcome {
    let device = device::<B>()?;
    let kept = device.allocate_host(32 * MIB)?;
    let error = device.allocate_host(64 * MIB).unwrap_err();
    assert!(matches!(error, Error::HostOutOfMemory { .. }), "{error:?}");
    drop(device.allocate_host(32 * MIB)?); // stays in the cache
    drop(kept);
    drop(device.allocate_host(64 * MIB)?); // requires releasing the cached block
    check_all_gone(device)
}

/// The call with this name, which fills memory, fails.
pub(crate) fn code_without_a_name<B: Simulated>(call: &str) -> Outcome {
    let device = device::<B>()?;
    B::fail(call, 1, 12_345);
    let error = device.allocate(10, device.default_stream())?.fill(0, device.default_stream()).unwrap_err();
    assert!(error.to_string().contains("12345"), "{error}");
    let Error::Driver { source, .. } = &error else { return Err(format!("{error:?}").into()) };
    assert_eq!((source.kind, source.call, source.code), (DriverErrorKind::Other, call, 12_345));
    check_all_gone(device)
}

/// A wait must wait even if calls with these names fail in it. Otherwise the device would write to memory that its user
/// already has back.
pub(crate) fn failed_wait<B: Simulated>(failing: &[(&str, RangeInclusive<u64>)]) -> Outcome {
    for (call, turns) in failing {
        let device = device::<B>()?;
        let stream = device.stream(0)?;
        let mut buffer = device.allocate(1000, stream)?;
        buffer.fill(7, stream)?;
        let mut pinned = device.allocate_host(1000)?;
        let bytes = pinned.bytes_mut()?;
        B::hold(stream);
        turns.clone().for_each(|n| B::fail(call, n, B::REFUSED));
        let refused = buffer.read(0, bytes, stream);
        assert_eq!(B::clear_faults(), 0);
        assert!(matches!(&refused, Err(Error::Driver { source, .. }) if source.call == *call), "{refused:?}");
        assert!(bytes.iter().all(|byte| *byte == 7), "{call} {turns:?}: the copy is still under way");
        drop((buffer, pinned));
        check_all_gone(device)?;
    }
    Ok(())
}
