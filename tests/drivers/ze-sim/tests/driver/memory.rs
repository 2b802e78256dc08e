//! Memory: contents, kinds, sizes, alignments, and freeing.

use std::ffi::c_void;
use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    const LITTLE: &[(&str, &str)] = &[("ZE_SIM_MEMORY", "64M"), ("ZE_SIM_HOST_MEMORY", "1M")];
    const LIMITED: &[(&str, &str)] = &[("ZE_SIM_MAX_ALLOCATION", "1M")];
    const TWO: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2")];
    const TWO_APART: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_PEERS", "0")];
    vec![
        valid("memory::bytes_go_everywhere", &[], bytes),
        valid("memory::is_told_apart", TWO, kinds),
        valid("memory::ends", LITTLE, ends),
        valid("memory::has_a_limit_that_a_descriptor_lifts", LIMITED, limits),
        valid("memory::is_aligned_as_asked_and_no_better", &[], alignment),
        valid("memory::of_whole_large_pages_is_dense", &[], large_pages),
        valid("memory::freed_too_early_is_told", &[], freed_too_early),
        valid("memory::that_is_gone_ends_the_device", &[], gone),
        valid("memory::beyond_an_allocation_ends_the_device", &[], beyond),
        valid("memory::of_the_program_is_touched_in_its_turn", &[], in_its_turn),
        valid("memory::of_another_context_is_told", &[], another_context),
        valid("memory::of_peers_is_reached", TWO, peers),
        valid("memory::of_devices_apart_is_not_reached", TWO_APART, apart),
        valid("memory::is_filled_with_patterns", &[], patterns),
        bare("memory::refuses_what_the_specification_does", &[], refusals),
    ]
}

fn bytes() {
    let program = Program::start();
    let list = program.list(0);
    let n = 3 * MIB + 5;
    let from: Vec<u8> = (0..n).map(|index| (index * 7) as u8).collect();
    let places = [program.device_memory(n), program.host_memory(n, 0), program.shared_memory(n)];
    let places = places.map(Result::unwrap);
    let mut last = from.as_ptr() as u64;
    for place in places {
        program.copy(list, place, last, n).unwrap();
        program.barrier(list, ptr::null_mut(), &mut []).unwrap();
        last = place;
    }
    assert_eq!(program.read(list, last, n), from);
    for place in &places[1..] {
        // SAFETY: host and shared memory of that many bytes, which nothing writes any more.
        let seen = unsafe { std::slice::from_raw_parts(*place as *const u8, n) };
        assert!(seen == from);
    }
    assert!(places[0] >= 1 << 48, "a program cannot dereference device addresses by luck");
    let live = control::live();
    assert!(live.contains(&("bytes", n as u64)) && live.contains(&("host_bytes", 2 * n as u64)), "{live:?}");
    for place in places {
        program.free(place).unwrap();
    }
    control::expect_violations(0, &[]);
}

fn kind_of(program: &Program, address: u64) -> (ze_memory_type_t, ze_device_handle_t) {
    let (mut properties, mut device) = (ze_memory_allocation_properties_t::default(), ptr::null_mut());
    let (context, address) = (program.context, address as *const c_void);
    let (properties_place, place) = (&raw mut properties, &raw mut device);
    done(ze!(program, zeMemGetAllocProperties(context, address, properties_place, place))).unwrap();
    (properties.type_, device)
}

fn kinds() {
    let program = Program::start();
    let second = program.device_memory_with(&Default::default(), 100, 0, 1).unwrap();
    let (host, shared) = (program.host_memory(100, 0).unwrap(), program.shared_memory(100).unwrap());
    let none = ptr::null_mut();
    assert_eq!(kind_of(&program, second + 99), (ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE, program.devices[1]));
    assert_eq!(kind_of(&program, host), (ze_memory_type_t::ZE_MEMORY_TYPE_HOST, none));
    assert_eq!(kind_of(&program, shared), (ze_memory_type_t::ZE_MEMORY_TYPE_SHARED, program.devices[0]));
    let own = 5_u8;
    let unknown = (ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN, none);
    assert_eq!([kind_of(&program, &raw const own as u64), kind_of(&program, second + 100)], [unknown; 2]);
    let range = |address: u64| {
        let (mut start, mut bytes) = (ptr::null_mut(), 0);
        let address = address as *const c_void;
        let call = ze!(program, zeMemGetAddressRange(program.context, address, &raw mut start, &raw mut bytes));
        done(call).map(|()| (start as u64, bytes))
    };
    assert_eq!([range(second + 7), range(host + 99)], [Ok((second, 100)), Ok((host, 100))]);
    assert!(range(second + 100).is_err());
}

fn ends() {
    let program = Program::start();
    let half = program.device_memory(40 * MIB).unwrap();
    let lack = ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_eq!(program.device_memory(30 * MIB), Err(lack));
    assert_eq!(control::set_memory(0, 128 << 20), 0);
    let more = program.device_memory(30 * MIB).unwrap();
    program.free(half).unwrap();
    program.free(more).unwrap();
    program.device_memory(128 * MIB).unwrap();
    program.host_memory(MIB, 0).unwrap();
    assert_eq!(program.host_memory(1, 0), Err(ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    assert_ne!(control::set_memory(1, 1), 0);
}

fn limits() {
    let program = Program::start();
    let mut properties = ze_device_properties_t::default();
    done(ze!(program, zeDeviceGetProperties(program.devices[0], &raw mut properties))).unwrap();
    assert_eq!(properties.maxMemAllocSize, MIB as u64);
    program.device_memory(MIB).unwrap();
    let refused = Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    assert_eq!([program.device_memory(MIB + 1), program.host_memory(MIB + 1, 0)], [refused; 2]);
    let lifted = ze_relaxed_allocation_limits_exp_desc_t { flags: 1, ..Default::default() };
    let desc = ze_device_mem_alloc_desc_t { pNext: (&raw const lifted).cast(), ..Default::default() };
    program.device_memory_with(&desc, MIB + 1, 0, 0).unwrap();
    let not_lifted = ze_relaxed_allocation_limits_exp_desc_t::default();
    let desc = ze_device_mem_alloc_desc_t { pNext: (&raw const not_lifted).cast(), ..Default::default() };
    assert_eq!(program.device_memory_with(&desc, MIB + 1, 0, 0), refused);
}

fn large_pages() {
    let program = Program::start();
    let sizes = [2 * MIB, 6 * MIB, 2 * MIB];
    let at = sizes.map(|bytes| program.device_memory_with(&Default::default(), bytes, 512, 0).unwrap());
    assert!(at[0].is_multiple_of(2 * MIB as u64), "{at:x?}");
    assert_eq!([at[1] - at[0], at[2] - at[1]], [2 * MIB as u64, 6 * MIB as u64]);
}

fn alignment() {
    let program = Program::start();
    let device = |alignment| program.device_memory_with(&Default::default(), 100, alignment, 0);
    for alignment in [0, 64, 64 << 10, 128 << 10, MIB, 2 * MIB, 32 * MIB] {
        let address = device(alignment).unwrap();
        let granted = alignment.max(64 << 10) as u64;
        assert!(address.is_multiple_of(granted), "{address:#x} {alignment:#x}");
        assert!(!address.is_multiple_of(2 * granted), "{address:#x} {alignment:#x}");
        let address = program.host_memory(100, alignment).unwrap();
        assert!(address.is_multiple_of(alignment.max(4 << 10) as u64), "{address:#x} {alignment:#x}");
        // Checks that the memory is accessible.
        // SAFETY: host memory of the trial.
        unsafe { ((address + 99) as *mut u8).write_volatile(1) };
        program.free(address).unwrap();
    }
}

fn freed_too_early() {
    let program = Program::start();
    let list = program.list(0);
    let (a, b) = (program.device_memory(100).unwrap(), program.host_memory(100, 0).unwrap());
    control::hold(list as usize);
    program.copy(list, a, b, 100).unwrap();
    program.free(b).unwrap();
    control::expect_violations(0, &["are freed while 1 commands have yet to use them"]);
    // That command was dropped, so it does nothing.
    program.free(a).unwrap();
    program.finish(list).unwrap();
    assert!(program.free(a).is_err());
    control::expect_violations(1, &["is freed, but no memory starts there"]);
}

fn gone() {
    let program = Program::start();
    let list = program.list(0);
    let (a, other) = (program.device_memory(100).unwrap(), program.device_memory(100).unwrap());
    let pool = program.pool(HOST_VISIBLE, 1);
    let end = program.event(pool, 0).unwrap();
    program.free(a).unwrap();
    program.fill(list, a, 1, 1).unwrap();
    program.barrier(list, end, &mut []).unwrap();
    assert_eq!(program.wait_for(end, FOR_EVER), Err(LOST));
    control::expect_violations(0, &["freed memory: 100 bytes"]);
    // From now on every call on the device fails.
    assert_eq!(program.fill(list, other, 1, 1), Err(LOST));
    assert_eq!([program.device_memory(1).map(drop), program.free(other)], [Err(LOST); 2]);
    assert_eq!(done(ze!(program, zeDeviceGetStatus(program.devices[0]))), Err(LOST));
    assert_eq!(done(ze!(program, zeContextGetStatus(program.context))), Err(LOST));
    control::reset_lost();
    program.fill(list, other, 3, 1).unwrap();
    assert_eq!(program.read(list, other, 1), [3]);
}

fn beyond() {
    let program = Program::start();
    let list = program.list(0);
    let a = program.device_memory(100).unwrap();
    program.fill(list, a, 1, 101).unwrap();
    assert_eq!(program.finish(list), Err(LOST));
    control::expect_violations(0, &["1 bytes beyond the end of its memory"]);
}

fn in_its_turn() {
    let program = Program::start();
    let list = program.list(0);
    let a = program.device_memory(1).unwrap();
    let mut byte = 1_u8;
    let place = &raw mut byte;
    control::hold(list as usize);
    program.copy(list, a, place as u64, 1).unwrap();
    // SAFETY: the trial's own memory, which the copy reads later.
    unsafe { place.write_volatile(2) };
    assert_eq!(program.read(list, a, 1), [2], "not read during the call");
    program.fill(list, a, 3, 1).unwrap();
    program.barrier(list, ptr::null_mut(), &mut []).unwrap();
    program.copy(list, place as u64, a, 1).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { place.read_volatile() }, 2, "not written during the call");
    program.finish(list).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { place.read_volatile() }, 3);
    assert!(program.fill(list, place as u64, 3, 1).is_err());
    control::expect_violations(0, &["which is not driver memory"]);
}

fn another_context() {
    let program = Program::start();
    let list = program.list(0);
    let mut other = Program::start();
    assert_ne!(program.context, other.context);
    let a = other.device_memory(8).unwrap();
    program.fill(list, a, 1, 8).unwrap();
    program.finish(list).unwrap();
    control::expect_violations(0, &["which belongs to another context"]);
    assert_eq!(kind_of(&program, a).0, ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN);
    program.free(a).unwrap();
    control::expect_violations(1, &["freed on a context that it was not allocated on"]);
    program.destroy_context(other.context).unwrap();
    other.context = program.context;
    let pool = other.pool(HOST_VISIBLE, 1);
    let event = other.event(pool, 0).unwrap();
    other.context = other.context().unwrap();
    let foreign = other.list(0);
    assert!(other.signal(foreign, event).is_err());
    control::expect_violations(2, &["used by a command list of another context"]);
}

fn peers() {
    let program = Program::start();
    let (first, second) = (program.list_on(0, 0, 0).unwrap(), program.list_on(1, 0, 1).unwrap());
    let a = program.device_memory(8).unwrap();
    let b = program.device_memory_with(&Default::default(), 8, 0, 1).unwrap();
    program.fill(first, a, 9, 8).unwrap();
    program.finish(first).unwrap();
    program.copy(second, b, a, 8).unwrap();
    program.finish(second).unwrap();
    assert_eq!(program.read(second, b, 8), [9; 8]);
    let [one, two] = [program.devices[0], program.devices[1]];
    assert_eq!(made(|can| ze!(program, zeDeviceCanAccessPeer(one, two, can))), Ok(1));
    control::expect_violations(0, &[]);
}

fn apart() {
    let program = Program::start();
    let list = program.list(0);
    let b = program.device_memory_with(&Default::default(), 8, 0, 1).unwrap();
    let [one, two] = [program.devices[0], program.devices[1]];
    assert_eq!(made(|can| ze!(program, zeDeviceCanAccessPeer(one, two, can))), Ok(0));
    program.fill(list, b, 1, 8).unwrap();
    control::expect_violations(0, &["of device 1, which it cannot reach"]);
}

fn patterns() {
    let program = Program::start();
    let (list, copies) = (program.list(0), program.list_on(0, 0, 1).unwrap());
    let a = program.device_memory(1 << 10).unwrap();
    let pattern: Vec<u8> = (0..128).collect();
    let none = ptr::null_mut();
    program.fill_with(list, a, &pattern[..4], 8, none, &mut []).unwrap();
    assert_eq!(program.read(list, a, 8), [0, 1, 2, 3, 0, 1, 2, 3]);
    program.fill_with(list, a, &pattern, 256, none, &mut []).unwrap();
    assert_eq!(program.read(list, a, 256), [&pattern[..], &pattern].concat());
    let refused = Err(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE);
    assert_eq!(program.fill_with(list, a, &pattern[..3], 6, none, &mut []), refused);
    assert_eq!(program.fill_with(list, a, &pattern[..4], 6, none, &mut []), refused);
    assert_eq!(program.fill_with(copies, a, &pattern[..32], 32, none, &mut []), refused, "a copy-only queue");
    let misaligned = Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    assert_eq!(program.fill_with(list, a + 2, &pattern[..4], 8, none, &mut []), misaligned);
    program.fill_with(copies, a, &pattern[..16], 32, none, &mut []).unwrap();
    program.finish(copies).unwrap();
}

fn refusals() {
    use ze_result_t as Result;
    let program = Program::start();
    let (list, a) = (program.list(0), program.device_memory(8).unwrap());
    assert_eq!(program.device_memory(0), Err(Result::ZE_RESULT_ERROR_UNSUPPORTED_SIZE));
    let misaligned = program.device_memory_with(&Default::default(), 8, 3, 0);
    assert_eq!(misaligned, Err(Result::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT));
    let desc = ze_device_mem_alloc_desc_t { flags: 8, ..Default::default() };
    let flags = program.device_memory_with(&desc, 8, 0, 0);
    assert_eq!(flags, Err(Result::ZE_RESULT_ERROR_INVALID_ENUMERATION));
    let no_handle = Err(Result::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    let no_pointer = Err(Result::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    assert_eq!(program.fill(ptr::null_mut(), a, 1, 8), no_handle);
    assert_eq!([program.copy(list, 0, a, 8), program.copy(list, a, 0, 8), program.free(0)], [no_pointer; 3]);
    let (desc, none) = (ze_device_mem_alloc_desc_t::default(), ptr::null_mut());
    let (context, device) = (program.context, program.devices[0]);
    let call = ze!(program, zeMemAllocDevice(context, &raw const desc, 8, 0, device, none));
    assert_eq!(done(call), no_pointer);
    let null: *const ze_device_mem_alloc_desc_t = ptr::null();
    let call = made(|place| ze!(program, zeMemAllocDevice(context, null, 8, 0, device, place)));
    assert_eq!(call.map(drop), no_pointer);
    control::expect_violations(0, &[]);
    // Mistakes that a validation layer accepts and no correct program makes.
    let desc = ze_device_mem_alloc_desc_t { stype: ze_structure_type_t(7), ..Default::default() };
    program.device_memory_with(&desc, 8, 0, 0).unwrap();
    assert!(program.fill(7 as List, a, 1, 8).is_err());
    let expected =
        ["ze_device_mem_alloc_desc_t says that its type is 0x7", "uses 0x7, which is not a live command list"];
    control::expect_violations(0, &expected);
}
