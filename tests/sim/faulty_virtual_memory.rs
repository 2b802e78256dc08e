//! Virtual memory through the faulty driver, around the host's and the simulated device's.
#![allow(unsafe_code)] // calls methods of `VirtualMemory`

use std::num::NonZeroU64;
use std::time::Duration;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    Backend, DevicePtr, DriverErrorKind, DriverResult, GIB, MIB, Pages, Place, StreamKind, VirtualMemory,
};
use accelerator_host::{Host, HostPtr};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("faulty::virtual_memory_is_the_inner_driver's", passed_on),
        Trial::test("faulty::each_call_of_virtual_memory_fails", each_fails),
        Trial::test("faulty::the_nth_call_fails_in_virtual_memory", nth_fails),
        Trial::test("faulty::memory_without_an_address_is_limited_and_counted", limited),
        Trial::test("faulty::misuse_of_virtual_memory_is_counted", misuse),
        Trial::test("faulty::memory_in_use_is_not_unmapped", unmapped_in_use),
        Trial::test("faulty::virtual_memory_is_reclaimed", reclaimed),
        Trial::test("faulty::gates_of_virtual_memory", gates),
        Trial::test("faulty::without_virtual_memory", without),
    ]
}

const PAGE: NonZeroU64 = NonZeroU64::new(2 * MIB).unwrap();

fn pages(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count * PAGE.get()).unwrap()
}

/// A faulty driver with a reservation of 4 pages. The only memory, one page, is mapped at the second.
struct Rig<B: Backend> {
    driver: Faulty<B>,
    start: B::Ptr,
    at: B::Ptr,
}

impl<B: Backend> Rig<B> {
    fn new(inner: B) -> DriverResult<(Self, Pages)> {
        let driver = Faulty::new(inner).with_memory(10 * MIB);
        let memory = driver.virtual_memory().unwrap();
        let (start, created) = (memory.reserve(pages(4))?, memory.create(PAGE)?);
        let at = start.offset(PAGE.get());
        // SAFETY: Inside the reservation.
        unsafe { memory.map(at, &created) }?;
        Ok((Self { driver, start, at }, created))
    }

    fn memory(&self) -> &dyn VirtualMemory<B::Ptr> {
        self.driver.virtual_memory().unwrap()
    }

    /// Undoes what `new` did.
    fn end(self, created: Pages) -> DriverResult<()> {
        // SAFETY: The only mapping of this memory, which no work uses.
        unsafe { self.memory().unmap(self.at, PAGE) }?;
        // SAFETY: It is not mapped any more.
        unsafe { self.memory().destroy(created) };
        // SAFETY: Nothing is mapped there any more.
        unsafe { self.memory().release(self.start, pages(4)) };
        assert_eq!((self.driver.live_allocations(), self.driver.live_reservations()), (0, 0));
        assert_eq!((self.driver.used(), self.driver.misuses()), (0, 0));
        Ok(())
    }
}

impl Rig<Host> {
    fn read(&self, at: HostPtr) -> DriverResult<u8> {
        let (mut byte, stream) = (0, self.driver.stream(StreamKind::Default)?);
        let to = Place::Host(std::ptr::NonNull::from(&mut byte));
        // SAFETY: It is mapped, as the trial guarantees, and the byte is waited for.
        unsafe { self.driver.copy(to, Place::Device(at), NonZeroU64::MIN, &stream) }?;
        self.driver.synchronize(&stream)?;
        Ok(byte)
    }
}

fn passed_on() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Host::open(0)?)?;
    assert_eq!(rig.memory().granularity(), rig.driver.inner().virtual_memory().unwrap().granularity());
    let stream = rig.driver.stream(StreamKind::Default)?;
    // SAFETY: A second place, still free, and the bytes of the first, where the memory is mapped.
    unsafe { rig.memory().map(rig.start, &created) }?;
    // SAFETY: As above.
    unsafe { rig.driver.fill(rig.at, 5, PAGE, &stream) }?;
    rig.driver.synchronize(&stream)?;
    assert_eq!(rig.read(rig.start.offset(77))?, 5);
    // SAFETY: A whole mapping, which no work uses.
    unsafe { rig.memory().unmap(rig.start, PAGE) }?;
    for (call, times) in [(Call::Reserve, 1), (Call::Create, 1), (Call::Map, 2), (Call::Unmap, 1)] {
        assert_eq!(rig.driver.calls().of(call), times, "{call:?}");
    }
    Ok(rig.end(created)?)
}

/// Makes the call three times: refused by the outer driver, refused by the inner one, and successful.
fn refused<T>(driver: &Faulty<Faulty<Sim>>, call: Call, mut run: impl FnMut() -> DriverResult<T>) -> DriverResult<T> {
    driver.fail_next(call, DriverErrorKind::Other);
    driver.inner().fail_next(call, DriverErrorKind::Unsupported);
    for kind in [DriverErrorKind::Other, DriverErrorKind::Unsupported] {
        let error = run().err().unwrap();
        assert_eq!((error.kind, error.call), (kind, call.name()));
    }
    run()
}

fn each_fails() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Faulty::new(Sim::new(GIB)))?;
    let (driver, memory) = (&rig.driver, rig.memory());
    let at = refused(driver, Call::Reserve, || memory.reserve(PAGE))?;
    let second = refused(driver, Call::Create, || memory.create(PAGE))?;
    driver.fail_allocs(1);
    assert_eq!(memory.create(PAGE).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    assert_eq!((driver.used(), driver.inner().inner().used()), (4 * MIB, 4 * MIB), "failed calls allocate nothing");
    // SAFETY: A separate reservation, mapped once. A failed call maps nothing, because otherwise the next call would be
    // refused.
    refused(driver, Call::Map, || unsafe { memory.map(at, &second) })?;
    // SAFETY: A whole mapping. A failed call keeps the mapping, because otherwise the next call would be refused.
    refused(driver, Call::Unmap, || unsafe { memory.unmap(at, PAGE) })?;
    driver.set_lost(true);
    assert_eq!(memory.reserve(PAGE).unwrap_err().kind, DriverErrorKind::DeviceLost);
    // SAFETY: It is not mapped any more.
    unsafe { memory.destroy(second) };
    // SAFETY: Nothing is mapped there any more.
    unsafe { memory.release(at, PAGE) };
    driver.set_lost(false);
    Ok(rig.end(created)?)
}

fn nth_fails() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Sim::new(GIB))?;
    rig.driver.fail_call(3, DriverErrorKind::Other);
    let at = rig.memory().reserve(PAGE)?;
    // SAFETY: Just reserved, with nothing mapped. The call cannot fail, and is not counted.
    unsafe { rig.memory().release(at, PAGE) };
    rig.driver.memory_info()?;
    assert_eq!(rig.memory().create(PAGE).unwrap_err().call, "create");
    Ok(rig.end(created)?)
}

fn limited() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Sim::new(GIB))?;
    let (driver, memory) = (&rig.driver, rig.memory());
    let second = memory.create(pages(3))?;
    let refused = memory.create(pages(2)).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::OutOfMemory, "create"));
    assert!(driver.alloc(pages(2)).is_err());
    assert_eq!((driver.live_allocations(), driver.used(), driver.memory_info()?.free), (2, 8 * MIB, 2 * MIB));
    // SAFETY: It was never mapped.
    unsafe { memory.destroy(second) };
    assert_eq!((driver.live_allocations(), driver.used()), (1, 2 * MIB));
    Ok(rig.end(created)?)
}

fn misuse() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Sim::new(GIB))?; // the device itself would panic
    let (driver, memory) = (&rig.driver, rig.memory());
    let twice = || Pages::new(created.handle, created.len);
    // SAFETY: Violated on purpose, here and below. The faulty driver detects it and does not pass it on.
    let map = |at| unsafe { memory.map(at, &created) };
    // SAFETY: As above.
    let unmap = |at, len| unsafe { memory.unmap(at, len) };
    let outside = rig.start.offset(pages(4).get());
    for refused in [map(rig.at), map(outside), unmap(rig.at, pages(2)), unmap(rig.start, PAGE)] {
        assert_eq!(refused.unwrap_err().kind, DriverErrorKind::InvalidArgument);
    }
    assert_eq!(driver.misuses(), 4);
    // SAFETY: As above.
    unsafe { memory.destroy(twice()) };
    // SAFETY: As above.
    unsafe { memory.release(rig.start, pages(4)) };
    assert_eq!((driver.misuses(), driver.used(), driver.live_reservations()), (6, 2 * MIB, 1));
    // SAFETY: The only mapping.
    unsafe { memory.unmap(rig.at, PAGE) }?;
    // SAFETY: It is not mapped any more.
    unsafe { memory.destroy(twice()) };
    // SAFETY: Violated on purpose, as above.
    unsafe { memory.destroy(created) };
    // SAFETY: Nothing is mapped there any more.
    unsafe { memory.release(rig.start, pages(4)) };
    assert_eq!((driver.misuses(), driver.used(), driver.live_reservations()), (7, 0, 0));
    Ok(())
}

fn unmapped_in_use() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Host::open(0)?)?;
    let stream = rig.driver.stream(StreamKind::Default)?;
    // SAFETY: A second place, still free.
    unsafe { rig.memory().map(rig.start, &created) }?;
    rig.driver.hold(&stream);
    // SAFETY: The memory is mapped there.
    unsafe { rig.driver.fill(rig.start.offset(PAGE.get() - 1), 9, NonZeroU64::MIN, &stream) }?;
    // SAFETY: Violated on purpose: held work is to use it. The driver runs that first, as the bytes show.
    unsafe { rig.memory().unmap(rig.start, PAGE) }?;
    assert_eq!(rig.driver.misuses(), 1);
    Controls::release(&rig.driver, &stream);
    assert_eq!(rig.read(rig.at.offset(PAGE.get() - 1))?, 9);
    // SAFETY: As above.
    unsafe { rig.memory().map(rig.start, &created) }?;
    rig.driver.hold(&stream);
    // SAFETY: The memory is also mapped there, at addresses that start where the others end.
    unsafe { rig.driver.fill(rig.at, 9, PAGE, &stream) }?;
    // SAFETY: A whole mapping, whose addresses no work uses.
    unsafe { rig.memory().unmap(rig.start, PAGE) }?;
    assert_eq!(rig.driver.misuses(), 1);
    Controls::release(&rig.driver, &stream);
    rig.driver.settle();
    // SAFETY: The rig's memory is not used any more.
    unsafe { rig.driver.reclaim() };
    Ok(())
}

fn reclaimed() -> Result<(), Failed> {
    let (rig, _kept) = Rig::new(Sim::new(GIB))?;
    rig.memory().create(PAGE)?;
    // SAFETY: The rig's memory is not used any more.
    unsafe { rig.driver.reclaim() };
    let driver = &rig.driver;
    assert_eq!((driver.live_allocations(), driver.live_reservations(), driver.used()), (0, 0, 0));
    assert_eq!((driver.inner().used(), driver.misuses()), (0, 0));
    for (taken, given_back) in [(Call::Reserve, Call::Release), (Call::Create, Call::Destroy), (Call::Map, Call::Unmap)]
    {
        let calls = driver.inner().calls();
        assert_eq!(calls.of(taken), calls.of(given_back));
    }
    Ok(())
}

fn gates() -> Result<(), Failed> {
    let (rig, created) = Rig::new(Sim::new(GIB))?;
    let gate = rig.driver.gate(Call::Create);
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| rig.memory().create(PAGE));
        assert!(gate.wait_reached(Duration::from_secs(10)));
        assert_eq!(rig.driver.inner().calls().of(Call::Create), 1, "the call waits before reaching the inner driver");
        gate.open();
        let second = creating.join().unwrap().unwrap();
        // SAFETY: It was never mapped.
        unsafe { rig.memory().destroy(second) };
    });
    Ok(rig.end(created)?)
}

fn without() -> Result<(), Failed> {
    assert!(Faulty::new(Sim::new(GIB).without_virtual_memory()).virtual_memory().is_none());
    Ok(())
}
