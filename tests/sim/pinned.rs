//! Pinned memory of a host that has little of it.

use accelerator_conformance::{Controls, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, Error, HostOutOfMemory, MIB};
use libtest_mimic::{Failed, Trial};

use super::device;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("pinned::a_refusal_says_what_was_asked_for_and_what_may_help", refusals),
        Trial::test("pinned::a_free_block_serves_requests_of_more_than_half_its_size", classes),
        Trial::test("pinned::elements_are_the_bytes_of_a_buffer", elements),
    ]
}

const ROUNDED: &str = "pinned_max_round_threshold_mb";
const IN_USE: &str = "still in use by streams";
const OTHERS: &str = "Other devices";
const LESS: &str = "Pin less at a time";

fn refused(device: &'static Accelerator<Faulty<Sim>>, bytes: u64) -> Result<HostOutOfMemory, Failed> {
    match device.allocate_host(bytes) {
        Err(Error::HostOutOfMemory(report)) => Ok(*report),
        other => Err(format!("{bytes} bytes: {other:?}").into()),
    }
}

fn refusals() -> Result<(), Failed> {
    for ordinal in 0..2 {
        let device = Accelerator::new(Faulty::new(Sim::new(MIB)), ordinal, AllocatorConfig::default())?;
        device.backend().set_host_capacity(7 * MIB);
        let side = device.stream(0)?;
        let active = device.allocate_host(MIB)?;
        let used = device.allocate_host(2 * MIB)?;
        drop(device.allocate_host(MIB / 2)?);
        let check = |bytes, block: Option<u64>, cached, in_use, expected: &[&str]| {
            let report = refused(device, bytes)?;
            let HostOutOfMemory { requested, block: asked, driver, cached: free, active, .. } = report;
            assert_eq!((requested, asked, free), (bytes, block, cached));
            assert_eq!((active, driver.is_some()), (in_use, block.is_some()));
            let expected: Vec<_> = expected.iter().filter(|word| ordinal > 0 || **word != OTHERS).collect();
            let fits = report.advice.iter().zip(&expected).all(|(text, word)| text.contains(**word));
            assert!(fits && report.advice.len() == expected.len(), "{bytes}: {:?}", report.advice);
            Ok::<_, Failed>(())
        };
        check(4 * MIB + 1, Some(8 * MIB), MIB / 2, 3 * MIB, &[ROUNDED, OTHERS, LESS])?;
        check(8 * MIB, Some(8 * MIB), 0, 3 * MIB, &[OTHERS, LESS])?;
        check(u64::MAX, None, 0, 3 * MIB, &[OTHERS])?;

        device.backend().hold(side.native());
        used.record_use(side)?;
        drop(used);
        check(8 * MIB, Some(8 * MIB), 0, 3 * MIB, &[IN_USE, OTHERS, LESS])?;
        device.backend().release(side.native());
        check(8 * MIB, Some(8 * MIB), 2 * MIB, MIB, &[OTHERS, LESS])?;
        drop(device.allocate_host(4 * MIB)?);
        drop(active);
        device.host_allocator().empty_cache()?;
        assert_eq!((device.backend().host_used(), device.backend().live_host_allocations()), (0, 0));
    }
    Ok(())
}

/// Requests above 1 MiB are not rounded, so that blocks of any size are free.
fn classes() -> Result<(), Failed> {
    let device = device(Sim::new(MIB), "pinned_max_round_threshold_mb:1")?;
    for (requested, block) in [
        (4 * MIB, 4 * MIB),
        (4 * MIB - 1, 4 * MIB),
        (3 * MIB, 4 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (2 * MIB, 2 * MIB),
        (4 * MIB + 1, 4 * MIB + 1),
    ] {
        drop(device.allocate_host(4 * MIB)?);
        assert_eq!(device.allocate_host(requested)?.block_size(), block, "{requested} bytes");
        device.host_allocator().empty_cache()?;
    }
    Ok(())
}

fn elements() -> Result<(), Failed> {
    let device = device(Sim::new(MIB), "")?;
    let mut buffer = device.allocate_host(12)?;
    let numbers = [0x0102_0304_u32, 7, u32::MAX];
    buffer.slice_mut::<u32>()?.copy_from_slice(&numbers);
    assert_eq!(buffer.bytes()?, numbers.map(u32::to_ne_bytes).as_flattened());
    buffer.bytes_mut()?[4..8].copy_from_slice(&9_u32.to_ne_bytes());
    assert_eq!(buffer.slice::<u32>()?, [0x0102_0304, 9, u32::MAX]);
    let refused = [buffer.slice::<u64>().map(drop), buffer.slice_mut::<u64>().map(drop)];
    for refused in refused {
        assert!(matches!(refused, Err(Error::ElementSize { size: 12, element: 8 })), "{refused:?}");
    }
    assert_eq!((buffer.len(), buffer.is_empty(), buffer.block_size()), (12, false, 16));
    let mut empty = device.allocate_host(0)?;
    assert_eq!((empty.len(), empty.is_empty(), empty.block_size(), empty.ptr()), (0, true, 0, None));
    assert_eq!((empty.slice_mut::<u64>()?.len(), empty.slice::<u64>()?.len()), (0, 0));
    Ok(())
}
