//! What the message about a refused request advises: what applies, and nothing that is done already.

use std::num::NonZeroU64;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Backend, Buffer, Error, MIB, MemPool, MemPoolId, MemPoolOptions, OutOfMemory};
use libtest_mimic::{Failed, Trial};

use super::device;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("refusals::much_that_is_unallocated_is_told_with_the_setting_that_helps", fragmented),
        Trial::test("refusals::free_memory_between_blocks_in_use_is_told", in_pieces),
        Trial::test("refusals::free_memory_of_pools_is_told_unless_they_are_reclaimed", in_pools),
        Trial::test("refusals::a_limit_is_told", limited),
        Trial::test("refusals::memory_that_others_hold_is_told_if_it_would_suffice", elsewhere),
        Trial::test("refusals::what_streams_use_is_told_and_then_what_is_cached", rejected),
    ]
}

const ELSEWHERE: &str = "held outside this allocator";
const EXPANDABLE: &str = "expandable_segments:True";
const MAX_SPLIT: &str = "max_split_size_mb";
const POOLS: &str = "free in private pools";

type Device = &'static Accelerator<Sim>;

/// Makes a request that is refused.
fn refused(device: Device, mib: u64) -> Result<OutOfMemory, Failed> {
    match device.allocate(mib * MIB, device.default_stream()) {
        Err(Error::OutOfMemory(report)) => Ok(*report),
        _ => Err(format!("{mib} MiB were not refused").into()),
    }
}

/// Makes a request that is refused, and checks that each piece of advice has one of these words.
fn check(device: Device, mib: u64, expected: &[&str]) -> Result<OutOfMemory, Failed> {
    let report = refused(device, mib)?;
    let advice = &report.advice;
    let fits = advice.len() == expected.len() && advice.iter().zip(expected).all(|(text, word)| text.contains(word));
    if fits { Ok(report) } else { Err(format!("{mib} MiB: expected {expected:?}, got {advice:?}").into()) }
}

/// Takes so many segments of 20 MiB, in each of which 8 MiB, a block in use and 10 MiB remain.
fn fragment(device: Device, segments: u64) -> Result<Vec<Buffer<Sim>>, Failed> {
    let mut kept = Vec::new();
    let mut dropped = Vec::new();
    for _ in 0..segments {
        let [ahead, used, behind] = [8, 2, 10].map(|mib| device.allocate(mib * MIB, device.default_stream()));
        kept.push(used?);
        dropped.extend([ahead?, behind?]);
    }
    Ok(kept)
}

fn fragmented() -> Result<(), Failed> {
    let plain = |mib| Sim::new(mib * MIB).without_virtual_memory();
    for (sim, segments, settings, requested, expected) in [
        (plain(20), 1, "", 12, &[][..]), // 18 MiB are not much
        (plain(40), 2, "", 12, &[MAX_SPLIT]),
        (plain(40), 2, "", 36, &[MAX_SPLIT]),
        (plain(40), 2, "", 37, &[]), // the 36 MiB would not suffice
        (plain(40), 2, "max_split_size_mb:64", 12, &[]),
        (plain(40), 2, "expandable_segments:True", 12, &[MAX_SPLIT]), // which has no effect here
        (Sim::new(20 * MIB), 1, "", 12, &[]),
        (Sim::new(40 * MIB), 2, "", 12, &[EXPANDABLE]),
        (Sim::new(40 * MIB), 2, "max_split_size_mb:64", 12, &[EXPANDABLE]),
    ] {
        let device = device(sim, settings)?;
        let _kept = fragment(device, segments)?;
        check(device, requested, expected)?;
    }
    Ok(())
}

/// Frees two of four blocks in the same piece of memory.
fn in_pieces() -> Result<(), Failed> {
    for settings in ["", "policy:compact"] {
        let device = device(Sim::new(40 * MIB), settings)?;
        let [_first, second, _third, fourth] = [(); 4].map(|()| device.allocate(MIB / 2 - 12, device.default_stream()));
        drop((second?, fourth?));
        let report = refused(device, 63)?;
        assert_eq!((report.allocated, report.rounding, report.segment), (MIB, 24, 64 * MIB), "{settings}");
        assert!((MIB..=report.reserved - MIB).contains(&report.in_pieces), "{settings}: {}", report.in_pieces);
    }
    Ok(())
}

fn in_pools() -> Result<(), Failed> {
    for (settings, kept, requested, expected) in [
        ("", 24, 30, &[][..]), // the 24 MiB would not suffice
        ("", 24, 24, &[POOLS]),
        ("", 18, 23, &[]), // 18 MiB are not much
        ("reclaim_live_pools:True", 24, 24, &[]),
    ] {
        let device = device(Sim::new(40 * MIB).without_virtual_memory(), settings)?;
        let pool = MemPool::with_id(device, MemPoolId::next_graph(), MemPoolOptions::default())?;
        let guard = pool.use_pool();
        drop(device.allocate(kept * MIB, device.default_stream())?);
        drop(guard);
        let empty = MemPool::new(device, MemPoolOptions::default())?;
        let report = check(device, requested, expected)?;
        let pools: Vec<_> = report.pools.iter().map(|(id, info)| (*id, info.reserved_bytes)).collect();
        assert_eq!((pools, report.free_in_pools), (vec![(pool.id(), kept * MIB)], kept * MIB));
        assert_eq!(empty.uses(), 1);
    }
    Ok(())
}

fn limited() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    device.allocator().set_memory_fraction(0.5)?;
    check(device, 40, &["Raise the memory fraction"])?;
    device.allocator().set_memory_fraction(1.0)?;
    check(device, 80, &[])?;
    Ok(())
}

fn elsewhere() -> Result<(), Failed> {
    let device = device(Sim::new(64 * MIB), "")?;
    let own = device.allocate(20 * MIB, device.default_stream())?;
    let _others = device.backend().alloc(NonZeroU64::new(30 * MIB).ok_or("no bytes")?)?;
    check(device, 30, &[ELSEWHERE])?;
    check(device, 31, &[])?;
    assert_eq!(own.len() + device.memory_info()?.free, 34 * MIB);
    Ok(())
}

fn rejected() -> Result<(), Failed> {
    let device = device(Sim::new(80 * MIB), "")?;
    // The fraction of a device that is open already is no limit, but counts for this setting.
    let settings = "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5";
    device.allocator().set_config(device.allocator().config().updated(settings)?);
    let other = device.stream(0)?;
    let used = device.allocate(24 * MIB, device.default_stream())?;
    used.record_use(other)?;
    device.backend().hold(other.native());
    drop(used);
    check(device, 24, &["still in use by streams"])?;
    check(device, 25, &[])?;
    device.backend().release(other.native());
    check(device, 30, &["Call empty_cache"])?;
    device.allocator().empty_cache()?;
    drop(device.allocate(30 * MIB, device.default_stream())?);
    Ok(())
}
