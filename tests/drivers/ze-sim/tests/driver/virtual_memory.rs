//! Virtual memory: reserved addresses, physical memory, and mappings.

use std::ffi::c_void;
use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    vec![
        valid("virtual_memory::is_mapped_used_and_unmapped", &[("ZE_SIM_MEMORY", "64M")], whole_life),
        valid("virtual_memory::is_not_touched_without_access", &[], without_access),
        valid("virtual_memory::that_is_read_only_is_not_written", &[], read_only),
        valid("virtual_memory::unmapped_too_early_is_told", &[], too_early),
        bare("virtual_memory::has_pages", &[], pages),
    ]
}

const PAGE: usize = 2 * MIB;
const NONE: ze_memory_access_attribute_t = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
const READ_WRITE: ze_memory_access_attribute_t = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
const READ_ONLY: ze_memory_access_attribute_t = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY;

impl Program {
    fn reserve(&self, bytes: usize) -> Outcome<u64> {
        // Null is permitted, but old loaders' validation layer refuses it.
        let wish = ptr::without_provenance(1 << 40);
        let address: *mut c_void = made(|address| ze!(self, zeVirtualMemReserve(self.context, wish, bytes, address)))?;
        Ok(address as u64)
    }

    fn unreserve(&self, address: u64, bytes: usize) -> Outcome {
        done(ze!(self, zeVirtualMemFree(self.context, address as *const c_void, bytes)))
    }

    fn physical(&self, size: usize) -> Outcome<ze_physical_mem_handle_t> {
        let mut desc = ze_physical_mem_desc_t { size, ..Default::default() };
        let device = self.devices[0];
        made(|physical| ze!(self, zePhysicalMemCreate(self.context, device, &raw mut desc, physical)))
    }

    fn destroy_physical(&self, physical: ze_physical_mem_handle_t) -> Outcome {
        done(ze!(self, zePhysicalMemDestroy(self.context, physical)))
    }

    fn map(
        &self,
        address: u64,
        bytes: usize,
        physical: ze_physical_mem_handle_t,
        access: ze_memory_access_attribute_t,
    ) -> Outcome {
        let address = address as *const c_void;
        done(ze!(self, zeVirtualMemMap(self.context, address, bytes, physical, 0, access)))
    }

    fn unmap(&self, address: u64, bytes: usize) -> Outcome {
        done(ze!(self, zeVirtualMemUnmap(self.context, address as *const c_void, bytes)))
    }

    fn set_access(&self, address: u64, bytes: usize, access: ze_memory_access_attribute_t) -> Outcome {
        let address = address as *const c_void;
        done(ze!(self, zeVirtualMemSetAccessAttribute(self.context, address, bytes, access)))
    }

    /// Returns the access at an address and the length for which it applies.
    fn access(&self, address: u64, bytes: usize) -> Outcome<(ze_memory_access_attribute_t, usize)> {
        let mut length = 0;
        let address = address as *const c_void;
        let access = made(|access| {
            ze!(self, zeVirtualMemGetAccessAttribute(self.context, address, bytes, access, &raw mut length))
        });
        Ok((access?, length))
    }
}

fn whole_life() {
    let program = Program::start();
    let list = program.list(0);
    let address = program.reserve(4 * PAGE).unwrap();
    assert_eq!(program.access(address, 4 * PAGE), Ok((NONE, 4 * PAGE)));
    let parts = [program.physical(PAGE).unwrap(), program.physical(2 * PAGE).unwrap()];
    assert_eq!(program.physical(64 * MIB), Err(ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    program.map(address, PAGE, parts[0], READ_WRITE).unwrap();
    program.map(address + PAGE as u64, 2 * PAGE, parts[1], NONE).unwrap();
    assert!(program.map(address, PAGE, parts[0], READ_WRITE).is_err(), "something is mapped in the range");
    assert_eq!(program.access(address, 4 * PAGE), Ok((READ_WRITE, PAGE)));
    program.set_access(address, 3 * PAGE, READ_WRITE).unwrap();
    // Writes across both mappings.
    program.fill(list, address + PAGE as u64 - 8, 6, 16).unwrap();
    assert_eq!(program.read(list, address + PAGE as u64 - 8, 16), [6; 16]);
    // The contents belong to the physical memory.
    program.unmap(address + PAGE as u64, 2 * PAGE).unwrap();
    program.map(address + 2 * PAGE as u64, 2 * PAGE, parts[1], READ_WRITE).unwrap();
    assert_eq!(program.read(list, address + 2 * PAGE as u64, 8), [6; 8]);
    let live = control::live();
    for expected in [("reservations", 1), ("physical", 2), ("mappings", 2)] {
        assert!(live.contains(&expected), "{live:?}");
    }
    // Freeing the addresses removes the mappings.
    program.unreserve(address, 4 * PAGE).unwrap();
    for physical in parts {
        program.destroy_physical(physical).unwrap();
    }
    program.destroy_list(list).unwrap();
    assert_eq!(control::live(), [("contexts", 1)]);
    program.device_memory(64 * MIB).unwrap();
    control::expect_violations(0, &[]);
}

fn mapped(program: &Program, access: ze_memory_access_attribute_t) -> u64 {
    let address = program.reserve(PAGE).unwrap();
    program.map(address, PAGE, program.physical(PAGE).unwrap(), access).unwrap();
    address
}

fn without_access() {
    let program = Program::start();
    let list = program.list(0);
    let address = mapped(&program, NONE);
    program.fill(list, address, 1, 8).unwrap();
    assert_eq!(program.finish(list), Err(LOST));
    control::expect_violations(0, &["to which the device has no access"]);
}

fn read_only() {
    let program = Program::start();
    let list = program.list(0);
    let address = mapped(&program, READ_WRITE);
    program.fill(list, address, 1, 8).unwrap();
    program.finish(list).unwrap();
    program.set_access(address, PAGE, READ_ONLY).unwrap();
    assert_eq!(program.read(list, address, 8), [1; 8]);
    control::expect_violations(0, &[]);
    program.fill(list, address, 1, 8).unwrap();
    assert_eq!(program.finish(list), Err(LOST));
    control::expect_violations(0, &["to which the device has no access"]);
}

fn too_early() {
    let program = Program::start();
    let list = program.list(0);
    let address = program.reserve(PAGE).unwrap();
    let physical = program.physical(PAGE).unwrap();
    program.map(address, PAGE, physical, READ_WRITE).unwrap();
    control::hold(list as usize);
    program.fill(list, address, 1, 8).unwrap();
    program.destroy_physical(physical).unwrap();
    control::expect_violations(0, &["is destroyed while it is mapped"]);
    program.unmap(address, PAGE).unwrap();
    control::expect_violations(1, &["are unmapped while 1 commands have yet to use them"]);
    program.finish(list).unwrap();
    assert!(program.unmap(address, PAGE).is_err());
}

fn pages() {
    let program = Program::start();
    let (context, device) = (program.context, program.devices[0]);
    let page = |bytes| made(|page| ze!(program, zeVirtualMemQueryPageSize(context, device, bytes, page)));
    let small = 64 << 10;
    assert_eq!([page(1), page(PAGE - 1), page(PAGE), page(1 << 30)], [Ok(small), Ok(small), Ok(PAGE), Ok(PAGE)]);
    let refused = ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    assert_eq!(page(0), Err(refused));
    assert_eq!([program.reserve(0), program.reserve(small + 1), program.reserve(PAGE + small)], [Err(refused); 3]);
    assert_eq!([program.physical(0), program.physical(PAGE + small)].map(|made| made.map(drop)), [Err(refused); 2]);
    let address = program.reserve(2 * PAGE).unwrap();
    let physical = program.physical(PAGE).unwrap();
    let misaligned = Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    assert_eq!(program.map(address + small as u64, PAGE, physical, READ_WRITE), misaligned);
    let invalid = Err(ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION);
    assert_eq!(program.map(address, PAGE, physical, ze_memory_access_attribute_t(9)), invalid);
    assert!(program.unreserve(address, PAGE).is_err(), "a reservation is given up whole");
    control::expect_violations(0, &[]);
    assert!(program.map(address + 2 * PAGE as u64, PAGE, physical, READ_WRITE).is_err());
    control::expect_violations(0, &["used as reserved addresses, but are not reserved"]);
    // Small allocations have small pages.
    let address = program.reserve(3 * small).unwrap();
    let physical = program.physical(small).unwrap();
    program.map(address + small as u64, small, physical, READ_WRITE).unwrap();
    let list = program.list(0);
    program.fill(list, address + small as u64, 1, small).unwrap();
    program.finish(list).unwrap();
}
