//! The faulty driver around the host's: the order of late work, visible in the bytes; injected failures; gates.

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::time::Duration;

use accelerator_conformance::{Call, Controls, Faulty, FaultyStream, POISON};
use accelerator_core::{
    Backend, DevicePtr, DriverErrorKind, DriverResult, EventFlags, MIB, MemoryInfo, Place, StreamKind,
};
use accelerator_host::{Host, HostPtr};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("faulty::held_work_is_late_and_in_order", held_work),
        Trial::test("faulty::who_waits_for_a_held_stream_is_late_too", chains),
        Trial::test("faulty::waiting_on_the_host_gets_it_done", forced),
        Trial::test("faulty::streams_that_wait_for_each_other", crossed),
        Trial::test("faulty::an_event_recorded_again", recorded_again),
        Trial::test("faulty::the_nth_call_fails", nth_call),
        Trial::test("faulty::the_next_call_of_a_kind_fails", next_of_kind),
        Trial::test("faulty::late_work_that_fails_is_told", late_failure),
        Trial::test("faulty::memory_is_limited_and_counted", memory),
        Trial::test("faulty::given_back_memory_is_used_first", dealloc_after_late_work),
        Trial::test("faulty::gates", gates),
        Trial::test("faulty::quarantine", quarantine),
        Trial::test("faulty::host_memory_is_limited_counted_and_kept", host_memory),
        Trial::test("faulty::host_memory_in_use_is_not_given_back", host_memory_in_use),
    ]
}

const LEN: u64 = 4_096;

/// A faulty driver with two streams and memory, created for each test.
pub(crate) struct Rig {
    pub(crate) driver: Faulty<Host>,
    pub(crate) one: FaultyStream<Host>,
    pub(crate) two: FaultyStream<Host>,
    ptr: HostPtr,
}

impl Rig {
    pub(crate) fn new() -> DriverResult<Self> {
        let driver = Faulty::new(Host::open(0)?);
        let one = driver.stream(StreamKind::Default)?;
        let two = driver.stream(StreamKind::Side { priority: 0 })?;
        let ptr = driver.alloc(len())?;
        let rig = Self { driver, one, two, ptr };
        rig.fill(0, &rig.one)?;
        rig.driver.synchronize(&rig.one)?;
        Ok(rig)
    }

    pub(crate) fn fill(&self, value: u8, stream: &FaultyStream<Host>) -> DriverResult<()> {
        // SAFETY: The memory is `LEN` bytes long.
        unsafe { self.driver.fill(self.ptr, value, len(), stream) }
    }

    /// Returns the current first byte, read through the inner driver without waiting for any stream.
    pub(crate) fn now(&self) -> DriverResult<u8> {
        let mut byte = 0;
        let inner = self.driver.inner();
        inner.synchronize(self.one.inner())?;
        inner.synchronize(self.two.inner())?;
        let to = Place::Host(NonNull::from(&mut byte));
        // SAFETY: One byte from memory of `LEN` bytes to the stack, which outlives the synchronization.
        unsafe { inner.copy(to, Place::Device(self.ptr), NonZeroU64::MIN, self.one.inner()) }?;
        inner.synchronize(self.one.inner())?;
        Ok(byte)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // SAFETY: The rig's memory is not used any more.
        unsafe { self.driver.reclaim() };
    }
}

fn len() -> NonZeroU64 {
    NonZeroU64::new(LEN).unwrap()
}

fn held_work() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let event = rig.driver.event(EventFlags::default())?;
    rig.driver.hold(&rig.one);
    for value in 1..10 {
        rig.fill(value, &rig.one)?;
    }
    rig.driver.record(&event, &rig.one)?;
    assert_eq!(rig.now()?, 0, "nothing was done");
    assert!(!rig.driver.is_complete(&event)? && !rig.driver.is_idle(&rig.one)?);
    rig.driver.release(&rig.one);
    rig.driver.wait_host(&event)?;
    assert_eq!(rig.now()?, 9);
    Ok(())
}

fn chains() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let (first, second) = (rig.driver.event(EventFlags::default())?, rig.driver.event(EventFlags::default())?);
    rig.driver.hold(&rig.one);
    rig.fill(1, &rig.one)?;
    rig.driver.record(&first, &rig.one)?;
    rig.driver.wait(&rig.two, &first)?;
    rig.fill(2, &rig.two)?;
    rig.driver.record(&second, &rig.two)?;
    rig.driver.wait(&rig.one, &second)?;
    rig.fill(3, &rig.one)?;
    assert_eq!(rig.now()?, 0);
    assert!(!rig.driver.is_complete(&second)? && !rig.driver.is_idle(&rig.two)?);
    rig.driver.release(&rig.one);
    rig.driver.wait_host(&second)?;
    assert_eq!(rig.now()?, 3);
    assert!(rig.driver.is_complete(&second)?);
    Ok(())
}

fn forced() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let event = rig.driver.event(EventFlags::default())?;
    rig.driver.hold(&rig.one);
    rig.fill(1, &rig.one)?;
    rig.driver.record(&event, &rig.one)?;
    rig.fill(2, &rig.one)?;
    rig.driver.wait_host(&event)?;
    assert_eq!(rig.now()?, 1, "up to the event");
    rig.driver.wait(&rig.two, &event)?;
    rig.driver.synchronize(&rig.two)?;
    assert_eq!(rig.now()?, 1, "the other stream need not wait");
    rig.driver.synchronize(&rig.one)?;
    assert_eq!(rig.now()?, 2);
    rig.fill(3, &rig.one)?;
    assert_eq!(rig.now()?, 2, "it is held nevertheless");
    Ok(())
}

fn crossed() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let event = || rig.driver.event(EventFlags::default());
    let (a, b) = (event()?, event()?);
    rig.driver.hold(&rig.one);
    rig.driver.hold(&rig.two);
    rig.driver.record(&a, &rig.one)?;
    rig.driver.record(&b, &rig.two)?;
    rig.driver.wait(&rig.two, &a)?;
    rig.driver.wait(&rig.one, &b)?;
    rig.fill(1, &rig.one)?;
    rig.driver.record(&a, &rig.one)?;
    rig.driver.wait(&rig.two, &a)?;
    rig.fill(2, &rig.two)?;
    rig.driver.synchronize(&rig.two)?;
    assert_eq!(rig.now()?, 2, "a wait executes the awaited work of the other stream");
    assert!(rig.driver.is_complete(&a)?);
    Ok(())
}

fn recorded_again() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let event = rig.driver.event(EventFlags::default())?;
    rig.driver.hold(&rig.one);
    rig.fill(1, &rig.one)?;
    rig.driver.record(&event, &rig.one)?;
    rig.driver.wait(&rig.two, &event)?;
    rig.fill(2, &rig.two)?;
    let third = rig.driver.stream(StreamKind::Side { priority: 0 })?;
    rig.driver.record(&event, &third)?;
    rig.driver.wait_host(&event)?;
    assert_eq!(rig.now()?, 0, "a later record does not release waiters of an earlier one");
    rig.driver.release(&rig.one);
    assert_eq!(rig.now()?, 2);
    Ok(())
}

fn nth_call() -> Result<(), Failed> {
    let rig = Rig::new()?;
    rig.driver.fail_call(3, DriverErrorKind::DeviceLost);
    rig.driver.memory_info()?;
    rig.driver.is_idle(&rig.one)?;
    let refused = rig.driver.event(EventFlags::default()).map(drop).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::DeviceLost, "event"));
    rig.driver.event(EventFlags::default())?;
    assert_eq!(rig.driver.injected(), 1);

    rig.driver.fail_call(2, DriverErrorKind::Other);
    rig.driver.clear_failures();
    rig.driver.memory_info()?;
    rig.driver.memory_info()?;
    rig.driver.set_lost(true);
    assert!(rig.driver.memory_info().is_err() && rig.driver.is_idle(&rig.one).is_err());
    rig.driver.set_lost(false);
    rig.driver.memory_info()?;
    Ok(())
}

fn next_of_kind() -> Result<(), Failed> {
    let rig = Rig::new()?;
    rig.driver.fail_next(Call::Fill, DriverErrorKind::Other);
    rig.driver.memory_info()?;
    assert!(rig.fill(1, &rig.one).is_err());
    assert_eq!(rig.now()?, 0, "nothing was filled");
    rig.fill(1, &rig.one)?;
    rig.driver.fail_next(Call::Synchronize, DriverErrorKind::Other);
    rig.driver.hold(&rig.one);
    rig.fill(2, &rig.one)?;
    assert!(rig.driver.synchronize(&rig.one).is_err());
    assert_eq!(rig.now()?, 2, "the call has waited nevertheless");
    Ok(())
}

fn late_failure() -> Result<(), Failed> {
    use accelerator_conformance::Sim;

    // The simulated device refuses access to bytes: immediately, or later when the fill is late.
    let driver = Faulty::new(Sim::new(MIB));
    let stream = driver.stream(StreamKind::Default)?;
    let ptr = driver.alloc(len())?;
    // SAFETY: The memory is `LEN` bytes long.
    let fill = || unsafe { driver.fill(ptr, 1, len(), &stream) };
    assert!(fill().is_err());
    driver.hold(&stream);
    fill()?;
    let told = driver.synchronize(&stream).unwrap_err();
    assert_eq!((told.kind, told.call), (DriverErrorKind::Unsupported, "fill"));
    driver.synchronize(&stream)?;
    Ok(())
}

fn memory() -> Result<(), Failed> {
    let driver = Faulty::new(Host::open(0)?).with_memory(10 * MIB);
    assert_eq!(driver.properties().total_memory, 10 * MIB);
    let bytes = |count| NonZeroU64::new(count).unwrap();
    let first = driver.alloc(bytes(6 * MIB))?;
    assert_eq!(driver.alloc(bytes(5 * MIB)).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    let MemoryInfo { free, total, .. } = driver.memory_info()?;
    assert_eq!((free, total), (4 * MIB, 10 * MIB));
    assert_eq!((driver.live_allocations(), driver.used()), (1, 6 * MIB));
    driver.set_capacity(12 * MIB);
    let second = driver.alloc(bytes(5 * MIB))?;
    // SAFETY: Violated on purpose: the length is wrong, which the faulty driver detects and does not pass on.
    unsafe { driver.dealloc(first, bytes(MIB)) };
    assert_eq!((driver.misuses(), driver.live_allocations()), (1, 2));
    for (ptr, len) in [(first, 6 * MIB), (second, 5 * MIB)] {
        // SAFETY: Allocated above with this length.
        unsafe { driver.dealloc(ptr, bytes(len)) };
    }
    // SAFETY: Violated on purpose: freed twice, which the faulty driver detects and does not pass on.
    unsafe { driver.dealloc(first, bytes(6 * MIB)) };
    assert_eq!((driver.misuses(), driver.used()), (2, 0));
    Ok(())
}

fn dealloc_after_late_work() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let other = rig.driver.alloc(len())?;
    rig.driver.hold(&rig.one);
    rig.fill(5, &rig.one)?;
    // SAFETY: Two allocations of `LEN` bytes.
    unsafe { rig.driver.copy(Place::Device(other), Place::Device(rig.ptr), len(), &rig.one) }?;
    // SAFETY: Allocated above, and the work that uses it was submitted earlier.
    unsafe { rig.driver.dealloc(other, len()) };
    assert_eq!(rig.now()?, 5, "the work was done before its memory was freed");
    Ok(())
}

fn gates() -> Result<(), Failed> {
    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);
    let rig = Rig::new()?;
    let gate = rig.driver.gate(Call::MemoryInfo);
    assert!(!gate.wait_reached(SOON));
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| rig.driver.memory_info());
        assert!(gate.wait_reached(LATE));
        rig.driver.memory_info()?; // exactly one call
        assert!(!stuck.is_finished());
        gate.open();
        stuck.join().unwrap()
    })?;
    drop(rig.driver.gate(Call::MemoryInfo));
    rig.driver.memory_info()?;
    Ok(())
}

fn quarantine() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let ptr = rig.driver.alloc(len())?;
    rig.driver.start_quarantine();
    // SAFETY: Allocated above, and nothing uses it.
    unsafe { rig.driver.dealloc(ptr, len()) };
    assert_eq!(rig.driver.check_quarantine()?, []);
    let at = ptr.offset(1_000);
    for value in [POISON, 0] {
        // SAFETY: The memory is in quarantine, so it still exists.
        unsafe { rig.driver.fill(at, value, NonZeroU64::MIN, &rig.two) }?;
        rig.driver.synchronize(&rig.two)?;
        let found: Vec<_> = rig.driver.check_quarantine()?.iter().map(|found| found.address).collect();
        let expected = if value == POISON { vec![] } else { vec![at.trace_address()] };
        assert_eq!(found, expected);
    }
    rig.driver.end_quarantine();
    assert_eq!(rig.driver.check_quarantine()?, []);
    Ok(())
}

fn host_memory() -> Result<(), Failed> {
    let driver = Faulty::new(Host::open(0)?);
    driver.set_host_capacity(2 * LEN);
    let [first, second] = [driver.alloc_host(len())?, driver.alloc_host(len())?];
    assert_eq!(driver.alloc_host(len()).unwrap_err().kind, DriverErrorKind::OutOfMemory);
    assert_eq!((driver.live_host_allocations(), driver.host_used()), (2, 2 * LEN));
    assert_eq!(driver.used(), 0, "host memory does not count as device memory");
    driver.start_quarantine();
    // SAFETY: Allocated above with this length, and nothing uses it.
    unsafe { driver.dealloc_host(first, len()) };
    // SAFETY: Violated on purpose: freed twice, which the faulty driver detects and does not pass on.
    unsafe { driver.dealloc_host(first, len()) };
    assert_eq!((driver.misuses(), driver.host_used()), (1, LEN));
    assert_eq!(driver.check_quarantine()?, []);
    // SAFETY: The memory is in quarantine, so it still exists.
    let place = unsafe { first.add(7) };
    // SAFETY: As above.
    unsafe { place.write(0) };
    let found: Vec<_> = driver.check_quarantine()?.iter().map(|found| found.address).collect();
    assert_eq!(found, [place.as_ptr().addr() as u64]);
    driver.end_quarantine();
    driver.fail_next(Call::AllocHost, DriverErrorKind::Other);
    assert_eq!(driver.alloc_host(len()).unwrap_err().kind, DriverErrorKind::Other);
    assert_eq!(driver.calls().of(Call::AllocHost), 4);
    // SAFETY: Allocated above with this length, and nothing uses it.
    unsafe { driver.dealloc_host(second, len()) };
    assert_eq!((driver.live_host_allocations(), driver.host_used()), (0, 0));
    Ok(())
}

fn host_memory_in_use() -> Result<(), Failed> {
    let rig = Rig::new()?;
    let host = rig.driver.alloc_host(len())?;
    rig.driver.hold(&rig.one);
    // SAFETY: The last byte of `LEN`.
    let last = Place::Host(unsafe { host.add(LEN as usize - 1) });
    // SAFETY: One byte each, which the driver keeps until the copy is done.
    unsafe { rig.driver.copy(Place::Device(rig.ptr), last, NonZeroU64::MIN, &rig.one) }?;
    // SAFETY: Violated on purpose: the copy has not run yet. The faulty driver detects that and runs it first.
    unsafe { rig.driver.dealloc_host(host, len()) };
    assert_eq!(rig.driver.misuses(), 1);
    assert!(rig.driver.is_idle(&rig.one)?, "it is done");
    Ok(())
}
