//! The simulated device without the core.

use std::num::NonZeroU64;

use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{Backend, DevicePtr, DriverErrorKind, EventFlags, GIB, MIB, Place, StreamKind};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("sim::addresses_go_up_and_never_come_back", addresses),
        Trial::test("sim::capacity_is_kept", capacity),
        Trial::test("sim::allocations_fail_on_demand", fail_allocs),
        Trial::test("sim::held_streams", held_streams),
        Trial::test("sim::calls_are_counted_by_name", calls),
        Trial::test("sim::bytes_are_refused", bytes_are_refused),
    ]
}

fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

fn addresses() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let mut last = 0;
    for len in [1, 512, 2 * MIB, 2 * MIB + 1, 5] {
        let ptr = sim.alloc(bytes(len))?;
        assert!(ptr.trace_address().is_multiple_of(2 * MIB) && ptr.trace_address() > last);
        last = ptr.trace_address() + len - 1;
        assert_eq!(ptr.offset(len - 1).trace_address(), last);
        // SAFETY: Just allocated with this length, and never used.
        unsafe { sim.dealloc(ptr, bytes(len)) };
    }
    assert_eq!(sim.used(), 0);
    Ok(())
}

fn capacity() -> Result<(), Failed> {
    let sim = Sim::new(10 * MIB);
    let first = sim.alloc(bytes(6 * MIB))?;
    let refused = sim.alloc(bytes(4 * MIB + 1)).unwrap_err();
    assert_eq!(refused.kind, DriverErrorKind::OutOfMemory);
    assert_eq!(sim.alloc(bytes(u64::MAX)).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    assert_eq!(sim.memory_info()?.free, 4 * MIB);
    sim.set_capacity(5 * MIB);
    assert_eq!((sim.memory_info()?.free, sim.memory_info()?.total), (0, 5 * MIB));
    assert_eq!(sim.properties().total_memory, 10 * MIB, "properties are constant");
    sim.set_capacity(20 * MIB);
    sim.alloc(bytes(14 * MIB))?;
    // SAFETY: Allocated above with this length, and never used.
    unsafe { sim.dealloc(first, bytes(6 * MIB)) };
    assert_eq!(sim.used(), 14 * MIB);
    Ok(())
}

fn fail_allocs() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    sim.fail_allocs(2);
    for _ in 0..2 {
        assert_eq!(sim.alloc(bytes(1)).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    }
    sim.alloc(bytes(1))?;
    Ok(())
}

fn held_streams() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let (stream, other) = (sim.stream(StreamKind::Default)?, sim.stream(StreamKind::Side { priority: 0 })?);
    let event = || sim.event(EventFlags::default());
    let (early, first, second, elsewhere) = (event()?, event()?, event()?, event()?);
    sim.record(&early, &stream)?;
    sim.hold(&stream);
    assert!(sim.is_complete(&early)?, "recorded before the hold");
    sim.record(&first, &stream)?;
    sim.record(&second, &stream)?;
    sim.record(&elsewhere, &other)?;
    assert!(sim.is_complete(&elsewhere)?, "other streams run");
    assert!(!sim.is_complete(&first)? && !sim.is_complete(&second)?);
    sim.wait_host(&first)?;
    assert!(sim.is_complete(&first)? && !sim.is_complete(&second)?, "waiting executes the work up to that point");
    sim.synchronize(&stream)?;
    assert!(sim.is_complete(&second)?);
    sim.record(&second, &stream)?;
    assert!(!sim.is_complete(&second)?, "still held");
    sim.release(&stream);
    assert!(sim.is_complete(&second)? && sim.is_idle(&stream)?);
    Ok(())
}

fn calls() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let stream = sim.stream(StreamKind::Default)?;
    let event = sim.event(EventFlags::default())?;
    sim.record(&event, &stream)?;
    sim.record(&event, &stream)?;
    sim.is_complete(&event)?;
    assert_eq!((sim.calls().of(Call::Record), sim.calls().total()), (2, 5));
    let made: Vec<_> = sim.calls().made().collect();
    assert_eq!(made, [("event", 1), ("is_complete", 1), ("record", 2), ("stream", 1)]);
    Ok(())
}

fn bytes_are_refused() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let stream = sim.stream(StreamKind::Default)?;
    let ptr = sim.alloc(bytes(512))?;
    // SAFETY: Allocated above with this length.
    let filled = unsafe { sim.fill(ptr, 1, bytes(512), &stream) };
    // SAFETY: Both halves of what was allocated above.
    let copied = unsafe { sim.copy(Place::Device(ptr), Place::Device(ptr.offset(256)), bytes(256), &stream) };
    for refused in [filled, copied] {
        assert_eq!(refused.unwrap_err().kind, DriverErrorKind::Unsupported);
    }
    Ok(())
}
