//! Failures that a test requests, and behaviour observed in real drivers.

use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    const PLANNED: &[(&str, &str)] = &[("ZE_SIM_FAIL", "zeMemAllocDevice@2=0x70000003, zeEventCreate@*=0x70000002")];
    const QUIRKS: &str = "ZE_SIM_QUIRKS";
    vec![
        valid("faults::are_planned_in_the_environment", PLANNED, planned),
        valid("faults::are_planned_by_tests", &[], by_tests),
        valid("faults::come_before_any_effect", &[], before_any_effect),
        valid("faults::that_lose_a_device_lose_it_for_good", &[("ZE_SIM_DEVICES", "2")], lost),
        valid("faults::that_lose_a_device_leave_events_to_others", &[("ZE_SIM_DEVICES", "2")], events_of_others),
        bare("faults::a_setting_that_cannot_be_read_stops_the_start", &[("ZE_SIM_DEVICES", "x")], mistake),
        bare("faults::no_devices_no_driver", &[("ZE_SIM_DEVICES", "0")], no_devices),
        valid("faults::calls_are_logged", &[], logged),
        valid("faults::ignored_alignment", &[(QUIRKS, "ignore-alignment")], ignored_alignment),
        valid("faults::null_and_success", &[(QUIRKS, "null-success")], null_success),
        Alone { aborts: true, ..bare("faults::size_zero_aborts", &[(QUIRKS, "size-zero-aborts")], size_zero) },
        valid("faults::no_sysman", &[(QUIRKS, "no-sysman"), ("ZES_ENABLE_SYSMAN", "1")], no_sysman),
        valid(
            "faults::no_relaxed_limits",
            &[(QUIRKS, "no-relaxed-limits"), ("ZE_SIM_MAX_ALLOCATION", "1M")],
            no_relaxed_limits,
        ),
        valid("faults::no_pci", &[(QUIRKS, "no-pci")], no_pci),
        valid("faults::integrated", &[(QUIRKS, "integrated")], integrated),
    ]
}

const NO_MEMORY: ze_result_t = ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
const UNINITIALIZED: ze_result_t = ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED;

fn planned() {
    let program = Program::start();
    let allocated = [0; 3].map(|_| program.device_memory(8).map(drop));
    assert_eq!(allocated, [Ok(()), Err(NO_MEMORY), Ok(())]);
    let pool = program.pool(HOST_VISIBLE, 2);
    let failed = Err(ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    assert_eq!([0, 1].map(|index| program.event(pool, index)), [failed; 2]);
    assert_eq!(control::clear_faults(), 1);
    program.event(pool, 0).unwrap();
}

fn by_tests() {
    let program = Program::start();
    control::fail("zeMemFree", 2, ze_result_t::ZE_RESULT_ERROR_UNKNOWN);
    let [a, b] = [8, 8].map(|bytes| program.device_memory(bytes).unwrap());
    let unknown = Err(ze_result_t::ZE_RESULT_ERROR_UNKNOWN);
    assert_eq!([program.free(a), program.free(b), program.free(b)], [Ok(()), unknown, Ok(())]);
    let (calls, frees) = (control::calls(), control::calls_of("zeMemFree"));
    control::fail_at(2, NO_MEMORY.0);
    let list = program.list(0);
    assert_eq!(program.destroy_list(list), Err(NO_MEMORY));
    program.destroy_list(list).unwrap();
    assert_eq!((control::calls() - calls, frees), (3, 3));
}

fn before_any_effect() {
    let program = Program::start();
    let before = control::live();
    for name in ["zeMemAllocDevice", "zeCommandListCreateImmediate", "zeEventPoolCreate", "zeContextCreate"] {
        control::fail(name, 0, NO_MEMORY);
    }
    assert_eq!(program.device_memory(8), Err(NO_MEMORY));
    assert_eq!(program.list_on(0, 0, 0), Err(NO_MEMORY));
    assert_eq!(program.context(), Err(NO_MEMORY));
    assert_eq!((control::live(), control::clear_faults()), (before, 4));
}

fn lost() {
    let program = Program::start();
    let [list, other] = [0, 1].map(|device| program.list_on(device, 0, 0).unwrap());
    let a = program.device_memory(8).unwrap();
    let b = program.device_memory_with(&Default::default(), 8, 0, 1).unwrap();
    program.fill(list, a, 1, 8).unwrap();
    control::fail("zeCommandListAppendMemoryFill", 1, LOST);
    assert_eq!(program.fill(list, a, 2, 8), Err(LOST));
    assert_eq!(program.fill(list, a, 2, 8), Err(LOST), "permanently");
    assert_eq!([program.free(a), program.destroy_list(list)], [Err(LOST); 2]);
    // The other device is not affected.
    program.fill(other, b, 3, 8).unwrap();
    let pool = {
        let desc = ze_event_pool_desc_t { flags: HOST_VISIBLE, count: 1, ..Default::default() };
        let (context, mut device) = (program.context, program.devices[1]);
        made(|pool| ze!(program, zeEventPoolCreate(context, &raw const desc, 1, &raw mut device, pool))).unwrap()
    };
    let end = program.event(pool, 0).unwrap();
    program.barrier(other, end, &mut []).unwrap();
    program.wait_for(end, FOR_EVER).unwrap();
    control::reset_lost();
    assert_ne!(program.read(list, a, 8), [1; 8], "the lost device's work was dropped");
    control::expect_violations(0, &[]);
}

fn mistake() {
    assert!(Program::try_start().is_err());
}

fn no_devices() {
    assert!(Program::try_start().is_err());
}

fn logged() {
    let path = std::env::temp_dir().join(format!("ze-sim-log-{}", std::process::id()));
    // SAFETY: the driver reads the variable at its first call, and there is no other thread yet.
    unsafe { std::env::set_var("ZE_SIM_LOG", &path) };
    let program = Program::start();
    control::fail("zeMemFree", 1, ze_result_t::ZE_RESULT_ERROR_UNKNOWN);
    assert!(program.free(7).is_err());
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let last = log.lines().last().unwrap();
    assert!(log.contains(" zeInit(0,) = 0x0 ZE_RESULT_SUCCESS"), "{log}");
    assert!(last.contains(" zeMemFree(") && last.ends_with(", 0x7) = 0x7ffffffe ZE_RESULT_ERROR_UNKNOWN"), "{log}");
}

/// A pool for both devices keeps working on the remaining one, but waits for the lost device's signals fail.
fn events_of_others() {
    let program = Program::start();
    let pool = program.pool(HOST_VISIBLE, 3);
    let [of_lost, own] = [0, 1].map(|index| program.event(pool, index).unwrap());
    let lists = [0, 1].map(|device| program.list_on(device, 0, 0).unwrap());
    control::hold(lists[0] as usize);
    program.signal(lists[0], of_lost).unwrap();
    control::fail("zeCommandListAppendBarrier", 1, LOST);
    assert_eq!(program.barrier(lists[0], std::ptr::null_mut(), &mut []), Err(LOST));
    control::hold(lists[1] as usize);
    program.signal(lists[1], own).unwrap();
    assert_eq!(program.query(own), Err(NOT_READY));
    control::release(lists[1] as usize);
    program.wait_for(own, FOR_EVER).unwrap();
    program.reset(own).unwrap();
    program.event(pool, 2).unwrap();
    assert_eq!([program.query(of_lost), program.wait_for(of_lost, FOR_EVER)], [Err(LOST); 2]);
    control::expect_violations(0, &[]);
}

fn ignored_alignment() {
    let program = Program::start();
    for (bytes, alignment) in [(8, 0), (8, 128), (8, 2 * MIB), (2 * MIB, 512)] {
        let device = program.device_memory_with(&Default::default(), bytes, alignment, 0).unwrap();
        let host = program.host_memory(bytes, alignment).unwrap();
        for address in [device, host] {
            assert!(address.is_multiple_of(64) && !address.is_multiple_of(128), "{address:#x}");
        }
    }
}

fn null_success() {
    let program = Program::start();
    let all = [program.device_memory(8), program.host_memory(8, 0), program.shared_memory(8)];
    assert_eq!(all, [Ok(0); 3]);
    assert_eq!(control::live(), [("contexts", 1)]);
}

fn size_zero() {
    let _ = Program::start().device_memory(0);
}

fn no_sysman() {
    let program = Program::start();
    let mut count = 0;
    let device = program.devices[0].cast();
    let call = ze!(program, zesDeviceEnumMemoryModules(device, &raw mut count, ptr::null_mut()));
    assert_eq!(done(call), Err(UNINITIALIZED));
    if let Ok(init) = program.ze.zesInit() {
        // SAFETY: no pointers.
        assert!(done(unsafe { init(0) }).is_err());
    }
}

fn extensions(program: &Program) -> usize {
    let mut count = 0;
    done(ze!(program, zeDriverGetExtensionProperties(program.driver, &raw mut count, ptr::null_mut()))).unwrap();
    count as usize
}

fn no_relaxed_limits() {
    let program = Program::start();
    assert_eq!(extensions(&program), 1);
    let lifted = ze_relaxed_allocation_limits_exp_desc_t { flags: 1, ..Default::default() };
    let desc = ze_device_mem_alloc_desc_t { pNext: (&raw const lifted).cast(), ..Default::default() };
    let refused = Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    assert_eq!(program.device_memory_with(&desc, MIB + 1, 0, 0), refused);
}

fn no_pci() {
    let program = Program::start();
    assert_eq!(extensions(&program), 1);
    let mut properties = ze_pci_ext_properties_t::default();
    let call = ze!(program, zeDevicePciGetPropertiesExt(program.devices[0], &raw mut properties));
    assert_eq!(done(call), Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
}

fn integrated() {
    let program = Program::start();
    assert_eq!(extensions(&program), 2);
    let mut properties = ze_device_properties_t::default();
    done(ze!(program, zeDeviceGetProperties(program.devices[0], &raw mut properties))).unwrap();
    assert_eq!(properties.flags, ze_device_property_flag_t::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED.0);
}
