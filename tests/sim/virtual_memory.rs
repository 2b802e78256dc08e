//! Virtual memory of the simulated device.
#![allow(unsafe_code)] // calls methods of `VirtualMemory`

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use accelerator_conformance::{Controls, Sim, SimPtr};
use accelerator_core::{Backend, DevicePtr, DriverErrorKind, GIB, MIB, Pages, VirtualMemory};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("sim::reservations_go_up_and_never_come_back", reservations),
        Trial::test("sim::memory_without_an_address_counts", capacity),
        Trial::test("sim::creations_fail_on_demand", fail_allocs),
        Trial::test("sim::the_same_memory_at_two_addresses", two_addresses),
        Trial::test("sim::misuse_of_virtual_memory_is_noticed", misuse),
        Trial::test("sim::calls_of_virtual_memory_are_counted", calls),
        Trial::test("sim::without_virtual_memory", without),
    ]
}

const PAGE: NonZeroU64 = NonZeroU64::new(2 * MIB).unwrap();

fn pages(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count * PAGE.get()).unwrap()
}

fn pager(sim: &Sim) -> &dyn VirtualMemory<SimPtr> {
    sim.virtual_memory().unwrap()
}

/// Creates a reservation of 4 pages, and memory of 2.
fn scene(sim: &Sim) -> Result<(SimPtr, Pages), Failed> {
    Ok((pager(sim).reserve(pages(4))?, pager(sim).create(pages(2))?))
}

fn reservations() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let memory = pager(&sim);
    assert_eq!(memory.granularity(), PAGE);
    let first = memory.reserve(pages(600))?; // more than the device has
    assert_eq!(first.trace_address(), Sim::BASE + 0x4000_0000_0000);
    // SAFETY: Just reserved, with nothing mapped.
    unsafe { memory.release(first, pages(600)) };
    let second = memory.reserve(PAGE)?;
    assert_eq!(second.trace_address(), first.offset(pages(600).get()).trace_address());
    assert_eq!(memory.reserve(PAGE)?.trace_address(), second.offset(PAGE.get()).trace_address());
    assert_eq!(sim.used(), 0);
    let refused = memory.reserve(pages((1 << 43) - 1)).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::OutOfMemory, "reserve"));
    for len in [1, PAGE.get() + 512] {
        let refused = memory.reserve(NonZeroU64::new(len).unwrap()).unwrap_err();
        assert_eq!((refused.kind, refused.call), (DriverErrorKind::InvalidArgument, "reserve"));
        let refused = memory.create(NonZeroU64::new(len).unwrap()).unwrap_err();
        assert_eq!((refused.kind, refused.call), (DriverErrorKind::InvalidArgument, "create"));
    }
    Ok(())
}

fn capacity() -> Result<(), Failed> {
    let sim = Sim::new(10 * MIB);
    let memory = pager(&sim);
    let allocated = sim.alloc(NonZeroU64::new(3 * MIB).unwrap())?;
    let created = memory.create(pages(3))?;
    assert_eq!((sim.used(), sim.memory_info()?.free), (9 * MIB, MIB));
    let refused = memory.create(PAGE).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::OutOfMemory, "create"));
    assert!(sim.alloc(PAGE).is_err());
    // SAFETY: Created above, and not mapped.
    unsafe { memory.destroy(created) };
    assert_eq!(sim.used(), 3 * MIB);
    // SAFETY: Allocated above with this length, and never used.
    unsafe { sim.dealloc(allocated, NonZeroU64::new(3 * MIB).unwrap()) };
    memory.create(pages(5))?;
    assert_eq!(sim.used(), 10 * MIB);
    Ok(())
}

fn fail_allocs() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    sim.fail_allocs(3);
    for kind in [pager(&sim).create(PAGE).unwrap_err().kind, sim.alloc(PAGE).unwrap_err().kind] {
        assert_eq!(kind, DriverErrorKind::OutOfMemory);
    }
    pager(&sim).reserve(PAGE)?; // needs no memory
    assert_eq!(pager(&sim).create(PAGE).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    pager(&sim).create(PAGE)?;
    let sim = Sim::new(GIB).with_largest_allocation(PAGE.get());
    assert_eq!(pager(&sim).create(pages(2)).unwrap_err().kind, DriverErrorKind::AllocationTooLarge);
    Ok(())
}

fn two_addresses() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let memory = pager(&sim);
    let (start, created) = scene(&sim)?;
    let other = start.offset(pages(2).get());
    // SAFETY: Two halves of a reservation, mapped once each.
    unsafe { memory.map(start, &created)? };
    // SAFETY: As above.
    unsafe { memory.map(other, &created)? };
    assert_eq!(sim.used(), pages(2).get(), "it is the same memory");
    for at in [other, start] {
        // SAFETY: A whole mapping, which nothing uses.
        unsafe { memory.unmap(at, pages(2))? };
    }
    // SAFETY: It is not mapped any more.
    unsafe { memory.destroy(created) };
    // SAFETY: Nothing is mapped there any more.
    unsafe { memory.release(start, pages(4)) };
    assert_eq!(sim.used(), 0);
    Ok(())
}

/// Calls that break the contract, on a simulated device with a reservation of 4 pages and memory of 2 mapped in its
/// first half. The device has no bytes that these calls could corrupt, so it panics.
struct Misuse {
    sim: Sim,
    start: SimPtr,
    handle: u64,
}

impl Misuse {
    fn at(&self, bytes: u64) -> SimPtr {
        self.start.offset(bytes)
    }

    fn map(&self, at: u64, handle: u64, len: NonZeroU64) {
        // SAFETY: Violated on purpose.
        let _ = unsafe { pager(&self.sim).map(self.at(at), &Pages::new(handle, len)) };
    }

    fn unmap(&self, at: u64, len: NonZeroU64) {
        // SAFETY: Violated on purpose.
        let _ = unsafe { pager(&self.sim).unmap(self.at(at), len) };
    }

    fn destroy(&self, handle: u64, len: NonZeroU64) {
        // SAFETY: Violated on purpose.
        unsafe { pager(&self.sim).destroy(Pages::new(handle, len)) };
    }

    fn release(&self, at: u64, len: NonZeroU64) {
        // SAFETY: Violated on purpose.
        unsafe { pager(&self.sim).release(self.at(at), len) };
    }
}

fn misuse() -> Result<(), Failed> {
    type Run = fn(&Misuse);
    const P: u64 = PAGE.get();
    let misuses: [(&str, Run); 14] = [
        ("something is mapped in the range", |it| it.map(P, it.handle, pages(2))),
        ("something is mapped in the range", |it| {
            let large = pager(&it.sim).create(pages(4)).unwrap();
            it.map(0, large.handle, large.len);
        }),
        ("not within one reservation", |it| it.map(3 * P, it.handle, pages(2))),
        ("not within one reservation", |it| it.map(4 * P, it.handle, pages(2))),
        ("not aligned", |it| it.map(2 * P - 512, it.handle, pages(2))),
        ("no such memory", |it| it.map(2 * P, it.handle + 1, pages(2))),
        ("no such memory", |it| it.map(2 * P, it.handle, pages(1))),
        ("not exactly one mapping", |it| it.unmap(0, pages(1))),
        ("not exactly one mapping", |it| it.unmap(P, pages(1))),
        ("not exactly one mapping", |it| it.unmap(0, pages(4))),
        ("something is mapped in the range", |it| it.release(0, pages(4))),
        ("not reserved", |it| it.release(2 * P, pages(2))),
        ("the memory is mapped", |it| it.destroy(it.handle, pages(2))),
        ("no such memory", |it| it.destroy(it.handle + 1, pages(2))),
    ];
    for (number, (expected, run)) in misuses.into_iter().enumerate() {
        let sim = Sim::new(GIB);
        let (start, created) = scene(&sim)?;
        // SAFETY: The first half of a reservation.
        unsafe { pager(&sim).map(start, &created)? };
        let misuse = Misuse { sim, start, handle: created.handle };
        let told = catch_unwind(AssertUnwindSafe(|| run(&misuse))).unwrap_err();
        let told = told.downcast::<String>().unwrap();
        assert!(told.contains(expected), "{number}: {told}");
    }
    Ok(())
}

fn calls() -> Result<(), Failed> {
    let sim = Sim::new(GIB);
    let memory = pager(&sim);
    let (start, created) = scene(&sim)?;
    for _ in 0..2 {
        // SAFETY: The reservation is free.
        unsafe { memory.map(start, &created)? };
        // SAFETY: A whole mapping, which nothing uses.
        unsafe { memory.unmap(start, pages(2))? };
    }
    // SAFETY: It is not mapped any more.
    unsafe { memory.destroy(created) };
    // SAFETY: Nothing is mapped there any more.
    unsafe { memory.release(start, pages(4)) };
    let made: Vec<_> = sim.calls().made().collect();
    let expected = [("create", 1), ("destroy", 1), ("map", 2), ("release", 1), ("reserve", 1), ("unmap", 2)];
    assert_eq!(made, expected);
    Ok(())
}

fn without() -> Result<(), Failed> {
    assert!(Sim::new(GIB).without_virtual_memory().virtual_memory().is_none());
    Ok(())
}
