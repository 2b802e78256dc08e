//! What work does to memory.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use common::{Exclusive, mark};
use sim_engine::{
    Access, Error, FIRST_ADDRESS, GRANULARITY, Kernel, Launch, Lent, Operation, Source, Target, Waited, Work,
};

const DEVICE: usize = 0;
const OTHER: usize = 1;

/// Performs work on a device and returns a description of what went wrong.
fn perform(driver: &mut Exclusive, device: usize, work: Work) -> Option<String> {
    let lane = driver.lane_on(device);
    let (before, failed) = (driver.engine.violations.len(), driver.failed.len());
    let done = driver.submit(lane, Operation::new(work));
    driver.wait(&[done]);
    assert_eq!(driver.failed.len() - failed, driver.engine.violations.len() - before);
    driver.engine.violations.get(before).cloned()
}

#[test]
fn memory_is_charged_and_addresses_are_new() {
    let mut driver = Exclusive::new(0);
    let first = driver.allocate(DEVICE, 3);
    let second = driver.allocate(OTHER, GRANULARITY + 1);
    assert!(first >= FIRST_ADDRESS && second >= first + GRANULARITY && second.is_multiple_of(GRANULARITY));
    assert_eq!([0, 1].map(|device: usize| driver.engine.devices[device].used), [3, GRANULARITY + 1]);
    assert_eq!(driver.engine.free(first), Ok(()));
    assert_eq!(driver.engine.free(first), Err(Error::Unknown));
    assert!(driver.allocate(DEVICE, 3) > second);
    assert_eq!(driver.engine.devices[DEVICE].used, 3);
    assert_eq!(driver.engine.allocate(DEVICE, 0, 0, 0), Err(Error::ZeroSize));
    assert_eq!(driver.engine.allocate(DEVICE, (64 << 20) - 2, 0, 0), Err(Error::OutOfDeviceMemory));
    assert_eq!(driver.engine.allocate(7, 1, 0, 0), Err(Error::Unknown));
}

#[test]
fn an_alignment_is_kept_to_and_not_exceeded() {
    let mut driver = Exclusive::new(0);
    for alignment in [4 << 10, 64 << 10, GRANULARITY, 64 << 20] {
        let device = driver.engine.allocate_aligned(DEVICE, 3, alignment, 0, 0).unwrap();
        let host = driver.engine.host.allocate_aligned(3, alignment as usize, 0, None, 0).unwrap();
        for address in [device, host] {
            assert_eq!(address % (2 * alignment), alignment, "{address:#x}");
        }
        // Both the first and the last byte are accessible.
        assert_eq!(perform(&mut driver, DEVICE, Work::fill(host, 7, 3)), None);
        assert_eq!(perform(&mut driver, DEVICE, Work::fill(device, 7, 3)), None);
        assert_eq!(driver.read(host, 3), [7; 3]);
        assert_eq!(driver.engine.host.free(host), Ok(3));
        assert_eq!(driver.engine.free(device), Ok(()));
    }
    assert_eq!(driver.engine.allocate_aligned(DEVICE, 3, 3, 0, 0), Err(Error::NotAligned));
    assert_eq!(driver.engine.host.allocate_aligned(3, 3, 0, None, 0), Err(Error::NotAligned));
    assert!(driver.allocate(DEVICE, 3).is_multiple_of(GRANULARITY));
}

#[test]
fn owners_and_flags_are_kept() {
    let mut driver = Exclusive::new(0);
    let device = driver.engine.allocate(OTHER, 10, 77, 5).unwrap();
    let shared = driver.engine.host.allocate(5_000, 77, Some(OTHER), 6).unwrap();
    let (start, allocation) = driver.engine.memory.containing(device + 9).unwrap();
    assert_eq!((start, allocation.owner, allocation.flags, allocation.device), (device, 77, 5, OTHER));
    let (start, block) = driver.engine.host.containing(shared + 4_999).unwrap();
    assert_eq!((start, block.owner, block.flags, block.device, block.bytes()), (shared, 77, 6, Some(OTHER), 5_000));
    assert!(driver.engine.memory.containing(device + 10).is_none());
    assert_eq!((driver.engine.memory.of(77), driver.engine.host.of(77)), (vec![device], vec![shared]));
    assert_eq!(driver.engine.host.live(), (1, 5_000));
    assert_eq!(driver.engine.host.free(shared), Ok(5_000));
    assert_eq!(driver.engine.host.free(shared), Err(Error::Unknown));
    assert_eq!(driver.engine.host.live(), (0, 0));
}

#[test]
fn copies_read_and_write_in_their_turn() {
    let mut driver = Exclusive::new(0);
    let memory = driver.allocate(DEVICE, 8);
    let mut source = *b"abcdefgh";
    let lane = driver.lane();
    let copy = |source| Operation::new(Work::Copy { target: Target::Memory(memory), source, bytes: 8 });
    let early = driver.submit(lane, copy(Source::Snapshot(source.to_vec())));
    let late = driver.submit(lane, copy(Source::Pageable(Lent(source.as_mut_ptr()))));
    // SAFETY: the bytes belong to the test, and no work runs while it holds the driver.
    unsafe { source.as_mut_ptr().write_volatile(b'X') };
    driver.wait(&[early]);
    assert_eq!(driver.read(memory, 8)[1..], *b"bcdefgh");
    driver.wait(&[late]);
    assert_eq!(driver.read(memory, 8), b"Xbcdefgh");
    let overlapping = Work::Copy { target: Target::Memory(memory + 2), source: Source::Memory(memory), bytes: 6 };
    assert_eq!(perform(&mut driver, DEVICE, overlapping), None);
    assert_eq!(driver.read(memory, 8), b"XbXbcdef");
}

#[test]
fn fills_repeat_a_pattern_and_cut_it_short() {
    let mut driver = Exclusive::new(0);
    let memory = driver.allocate(DEVICE, 16);
    let fill = Work::Fill { address: memory + 1, pattern: b"abc".to_vec(), bytes: 8 };
    assert_eq!(perform(&mut driver, DEVICE, fill), None);
    assert_eq!(driver.read(memory, 11), b"\xCDabcabcab\xCD\xCD");
    assert_eq!(perform(&mut driver, DEVICE, Work::fill(memory, 7, 2)), None);
    assert_eq!(driver.read(memory, 3), [7, 7, b'b']);
}

#[test]
fn a_timestamp_is_the_virtual_time_at_its_end() {
    let mut driver = Exclusive::new(0);
    let memory = driver.allocate(DEVICE, 8);
    let lane = driver.lane();
    driver.submit(lane, mark("before"));
    let written = driver.submit(lane, Operation::new(Work::Timestamp { address: memory }).mark("written"));
    driver.wait(&[written]);
    let ended = driver.reached[1].1.ended;
    assert_eq!((driver.read(memory, 8), ended), (ended.to_ne_bytes().to_vec(), 200));
}

#[test]
fn kernels_reach_shared_memory_and_not_that_of_other_devices() {
    let mut driver = Exclusive::new(0);
    let shared = driver.engine.host.allocate(8, 0, Some(DEVICE), 0).unwrap();
    let own = driver.allocate(DEVICE, 8);
    let values: Vec<u8> = [2.0f32, 3.0].into_iter().flat_map(f32::to_ne_bytes).collect();
    for target in [shared, own] {
        let copy = Work::Copy { target: Target::Memory(target), source: Source::Snapshot(values.clone()), bytes: 8 };
        assert_eq!(perform(&mut driver, DEVICE, copy), None);
    }
    let launch = |x| {
        let arguments = vec![2, u64::from(0.5f32.to_bits()), x];
        Work::Kernel(Launch { kernel: Kernel::Scale, threads: 32, arguments })
    };
    assert_eq!(perform(&mut driver, DEVICE, launch(own)), None);
    assert_eq!(perform(&mut driver, OTHER, launch(shared)), None);
    let halves: Vec<u8> = [1.0f32, 1.5].into_iter().flat_map(f32::to_ne_bytes).collect();
    assert_eq!((driver.read(own, 8), driver.read(shared, 8)), (halves.clone(), halves));
    let wrong = perform(&mut driver, OTHER, launch(own)).unwrap();
    assert!(wrong.contains("kernel scale on device 1") && wrong.contains("peer access"), "{wrong}");
    let wrong = perform(&mut driver, DEVICE, launch(own + 2)).unwrap();
    assert!(wrong.contains("not a multiple of 4"), "{wrong}");
    let wrong = perform(&mut driver, DEVICE, launch(own + 4)).unwrap();
    assert!(wrong.contains("4 bytes beyond the end"), "{wrong}");
}

#[test]
fn work_that_goes_wrong_sets_and_marks_nothing() {
    let mut driver = Exclusive::new(0);
    let memory = driver.allocate(DEVICE, 8);
    let lane = driver.lane();
    let signal = driver.engine.signals.make();
    let wrong = driver.submit(lane, Operation::new(Work::fill(memory, 1, 8)).sets(signal).mark("wrong"));
    let next = driver.submit(lane, mark("next"));
    driver.engine.free(memory).unwrap();
    assert_eq!(driver.wait(&[next]), Waited::Over);
    assert_eq!((driver.order(), driver.failed.clone()), (vec!["next"], vec![wrong]));
    assert!(!driver.engine.signals.is_set(signal));
    assert!(driver.engine.violations[0].contains("freed memory: 8 bytes"), "{:?}", driver.engine.violations);
}

#[test]
fn it_is_known_which_work_uses_memory() {
    let mut driver = Exclusive::new(0);
    let (memory, other) = (driver.allocate(DEVICE, 64), driver.allocate(DEVICE, 64));
    let (lane, second) = (driver.lane(), driver.lane());
    let copy = Work::Copy { target: Target::Memory(other), source: Source::Memory(memory + 32), bytes: 8 };
    let copies = driver.submit(lane, Operation::new(copy).mark("copy"));
    driver.submit(lane, Operation::new(Work::fill(other, 1, 4)));
    let stamps = driver.submit(second, Operation::new(Work::Timestamp { address: memory + 8 }));
    assert_eq!(driver.engine.uses(memory, 64), [copies, stamps]);
    assert_eq!(driver.engine.uses(memory + 39, 1), [copies]);
    assert_eq!(driver.engine.uses(memory + 40, 24), []);
    assert_eq!(driver.engine.forget_uses(memory, 64), 2);
    assert_eq!(driver.engine.uses(memory, 64), []);
    driver.engine.free(memory).unwrap();
    let ends = driver.engine.ends(|_, _| true);
    assert_eq!(driver.wait(&ends), Waited::Over);
    assert!(driver.engine.violations.is_empty() && driver.order() == ["copy"]);
    assert_eq!(driver.read(other, 5), [1, 1, 1, 1, 0xCD]);
}

#[test]
fn physical_memory_is_mapped_in_parts() {
    let mut driver = Exclusive::new(0);
    let engine = &mut driver.engine;
    let physical = engine.create_physical(DEVICE, 2 * GRANULARITY).unwrap();
    let start = engine.reserve_addresses(2 * GRANULARITY, 0).unwrap();
    let middle = start + GRANULARITY;
    let memory = &mut engine.virtual_memory;
    assert_eq!(memory.map(start, GRANULARITY, 2 * GRANULARITY, physical), Err(Error::WrongRange));
    assert_eq!(memory.map(start, GRANULARITY, 1, physical), Err(Error::NotAligned));
    assert_eq!(memory.map(start, GRANULARITY, 0, 99), Err(Error::Unknown));
    // Maps the two halves in swapped order.
    assert_eq!(memory.map(start, GRANULARITY, GRANULARITY, physical), Ok(()));
    assert_eq!(memory.map(start, GRANULARITY, 0, physical), Err(Error::WrongRange));
    assert_eq!(memory.map(middle, GRANULARITY, 0, physical), Ok(()));
    assert_eq!(memory.set_access(start, 2 * GRANULARITY, DEVICE, Access::ReadWrite), Ok(()));
    assert_eq!(perform(&mut driver, DEVICE, Work::fill(middle - 2, 9, 4)), None);
    assert_eq!(driver.read(middle - 3, 6), [0xCD, 9, 9, 9, 9, 0xCD]);
    let whole = driver.engine.reserve_addresses(2 * GRANULARITY, 0).unwrap();
    let memory = &mut driver.engine.virtual_memory;
    assert_eq!(memory.map(whole, 2 * GRANULARITY, 0, physical), Ok(()));
    assert_eq!(memory.set_access(whole, 2 * GRANULARITY, DEVICE, Access::Read), Ok(()));
    assert_eq!(driver.read(whole, 3), [9, 9, 0xCD]);
    assert_eq!(driver.read(whole + 2 * GRANULARITY - 3, 3), [0xCD, 9, 9]);
    let wrong = perform(&mut driver, DEVICE, Work::fill(whole, 1, 1)).unwrap();
    assert!(wrong.contains("no access"), "{wrong}");
    // Physical memory lives as long as any mapping of it.
    let engine = &mut driver.engine;
    assert_eq!(engine.release_physical(physical), Ok(()));
    assert_eq!(engine.unmap(start, 2 * GRANULARITY), Ok(()));
    assert_eq!(engine.devices[DEVICE].used, 2 * GRANULARITY);
    assert_eq!(engine.unmap(whole, 2 * GRANULARITY), Ok(()));
    assert_eq!((engine.devices[DEVICE].used, engine.virtual_memory.live()), (0, (2, 0, 0)));
}
