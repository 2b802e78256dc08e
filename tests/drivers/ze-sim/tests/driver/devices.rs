//! Properties of the driver and its devices, and system management.

use std::ffi::CStr;
use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    const THREE: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "3"), ("ZE_SIM_MEMORY", "3M")];
    const MASKED: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "3"), ("ZE_AFFINITY_MASK", "2,0")];
    vec![
        valid("devices::say_what_they_are", THREE, properties),
        valid("devices::are_chosen_by_a_mask", MASKED, mask),
        valid("devices::have_two_groups_of_queues", &[], groups),
        valid("devices::of_a_context_are_those_that_it_was_made_for", THREE, contexts),
        valid("devices::are_counted_as_every_list_is", THREE, counts),
        valid("devices::tell_their_version", &[("ZE_SIM_API_VERSION", "1.3")], version),
        valid("devices::have_free_memory", &[("ZES_ENABLE_SYSMAN", "1"), ("ZE_SIM_MEMORY", "3M")], free_memory),
        bare("devices::have_free_memory_by_zes_init", &[("ZE_SIM_MEMORY", "3M")], zes_init),
        valid("devices::have_usable_memory", &[("ZE_SIM_QUIRKS", "usable-memory"), ("ZE_SIM_MEMORY", "3M")], || {
            usable_memory(Some([2 << 20, 1 << 20]))
        }),
        valid("devices::do_not_tell_what_is_usable", &[("ZE_SIM_MEMORY", "3M")], || usable_memory(None)),
        valid("devices::have_no_sysman_unless_it_is_started", &[], not_started),
        bare("devices::are_started_by_type", &[], init_drivers),
    ]
}

/// Checks the usable memory before and after 1 MiB is allocated. With `None`, the extension is missing and its
/// structure stays untouched.
fn usable_memory(expected: Option<[u64; 2]>) {
    let program = Program::start();
    let told = || {
        let mut usable = ze_device_usablemem_size_ext_properties_t { currUsableMemSize: 7, ..Default::default() };
        let mut properties = ze_device_properties_t { pNext: (&raw mut usable).cast(), ..Default::default() };
        done(ze!(program, zeDeviceGetProperties(program.devices[0], &raw mut properties))).unwrap();
        assert_eq!(properties.pNext, (&raw mut usable).cast());
        usable.currUsableMemSize
    };
    let before = told();
    program.device_memory(MIB).unwrap();
    assert_eq!([before, told()], expected.unwrap_or([7, 7]));
}

fn text(array: &[std::ffi::c_char]) -> String {
    // SAFETY: the API's arrays are zero-terminated, and these start zeroed.
    unsafe { CStr::from_ptr(array.as_ptr()) }.to_str().unwrap().to_owned()
}

fn device_properties(program: &Program, device: usize) -> ze_device_properties_t {
    let mut properties = ze_device_properties_t::default();
    done(ze!(program, zeDeviceGetProperties(program.devices[device], &raw mut properties))).unwrap();
    properties
}

fn bus(program: &Program, device: usize) -> u32 {
    let mut properties = ze_pci_ext_properties_t::default();
    done(ze!(program, zeDevicePciGetPropertiesExt(program.devices[device], &raw mut properties))).unwrap();
    properties.address.bus
}

fn properties() {
    let program = Program::start();
    let all: Vec<_> = (0..3).map(|device| device_properties(&program, device)).collect();
    assert_eq!(all.iter().map(|own| own.uuid.id[15]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|device| bus(&program, device)), [0x20, 0x21, 0x22]);
    for own in &all {
        assert!(text(&own.name).contains("Simulated"), "{}", text(&own.name));
        assert_eq!((own.type_, own.vendorId, own.flags), (ze_device_type_t::ZE_DEVICE_TYPE_GPU, 0x8086, 0));
        assert_eq!(own.maxMemAllocSize, 3 << 20, "no more than there is");
    }
    // The newer structure gives the same clock in ticks per second.
    let mut newer = ze_device_properties_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
        ..Default::default()
    };
    done(ze!(program, zeDeviceGetProperties(program.devices[0], &raw mut newer))).unwrap();
    assert_eq!(newer.timerResolution * all[0].timerResolution, 1_000_000_000);
    let mut memory = [ze_device_memory_properties_t::default()];
    let mut count = 1;
    let device = program.devices[0];
    done(ze!(program, zeDeviceGetMemoryProperties(device, &raw mut count, memory.as_mut_ptr()))).unwrap();
    assert_eq!((count, memory[0].totalSize), (1, 3 << 20));
    let mut compute = ze_device_compute_properties_t::default();
    done(ze!(program, zeDeviceGetComputeProperties(device, &raw mut compute))).unwrap();
    assert_eq!((compute.maxTotalGroupSize, &compute.subGroupSizes[..3]), (1024, &[8, 16, 32][..]));
    control::expect_violations(0, &[]);
}

fn mask() {
    let program = Program::start();
    assert_eq!(program.devices.len(), 2);
    assert_eq!([0, 1].map(|device| device_properties(&program, device).uuid.id[15]), [0, 2]);
    assert_eq!([0, 1].map(|device| bus(&program, device)), [0x20, 0x22]);
}

fn contexts() {
    let mut program = Program::start();
    let desc = ze_context_desc_t::default();
    let mut chosen = [program.devices[2], program.devices[0]];
    let (driver, devices) = (program.driver, chosen.as_mut_ptr());
    program.context =
        made(|context| ze!(program, zeContextCreateEx(driver, &raw const desc, 2, devices, context))).unwrap();
    for (device, works) in [true, false, true].into_iter().enumerate() {
        let memory = program.device_memory_with(&Default::default(), 8, 0, device);
        let list = program.list_on(device, 0, 0);
        assert_eq!((memory.is_ok(), list.is_ok()), (works, works), "{device}");
    }
    control::expect_violations(0, &["device 1 is not in context"; 2]);
}

fn groups() {
    let program = Program::start();
    let mut count = 5;
    let mut groups = [ze_command_queue_group_properties_t::default(); 5];
    let (device, places) = (program.devices[0], groups.as_mut_ptr());
    done(ze!(program, zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, places))).unwrap();
    let (compute, copy) = (1, 2);
    assert_eq!(groups.map(|group| group.flags), [compute | copy, copy, 0, 0, 0]);
    assert_eq!((count, groups[1].maxMemoryFillPatternSize), (2, 16));
}

fn counts() {
    let program = Program::start();
    let mut count = 2;
    let mut devices = [ptr::null_mut(); 4];
    done(ze!(program, zeDeviceGet(program.driver, &raw mut count, devices.as_mut_ptr()))).unwrap();
    assert_eq!((count, &devices[..2], devices[2]), (2, &program.devices[..2], ptr::null_mut()));
    count = 4;
    done(ze!(program, zeDeviceGet(program.driver, &raw mut count, devices.as_mut_ptr()))).unwrap();
    assert_eq!((count, &devices[..3], devices[3]), (3, &program.devices[..], ptr::null_mut()));
    count = 9;
    let device = program.devices[0];
    done(ze!(program, zeDeviceGetSubDevices(device, &raw mut count, ptr::null_mut()))).unwrap();
    assert_eq!(count, 0);
}

fn version() {
    let program = Program::start();
    let version = made(|version| ze!(program, zeDriverGetApiVersion(program.driver, version)));
    assert_eq!(version, Ok(ze_api_version_t(0x1_0003)));
}

/// Returns the free and the total bytes of the first device.
fn memory_state(program: &Program, device: zes_device_handle_t) -> Outcome<(u64, u64)> {
    let mut count = 1;
    let mut memory = ptr::null_mut();
    done(ze!(program, zesDeviceEnumMemoryModules(device, &raw mut count, &raw mut memory)))?;
    let mut properties = zes_mem_properties_t::default();
    done(ze!(program, zesMemoryGetProperties(memory, &raw mut properties)))?;
    let mut state = zes_mem_state_t::default();
    done(ze!(program, zesMemoryGetState(memory, &raw mut state)))?;
    assert_eq!((count, state.size), (1, properties.physicalSize));
    Ok((state.free, state.size))
}

fn free_memory() {
    let program = Program::start();
    // Device handles work for both APIs.
    let device = program.devices[0].cast();
    assert_eq!(memory_state(&program, device), Ok((3 << 20, 3 << 20)));
    let a = program.device_memory(MIB).unwrap();
    assert_eq!(memory_state(&program, device), Ok((2 << 20, 3 << 20)));
    program.free(a).unwrap();
    assert_eq!(memory_state(&program, device), Ok((3 << 20, 3 << 20)));
    control::expect_violations(0, &[]);
}

fn zes_init() {
    let program = Program::start();
    let Ok(init) = program.ze.zesInit() else {
        eprintln!("the loader is older than zesInit");
        return;
    };
    // SAFETY: no pointers.
    done(unsafe { init(0) }).unwrap();
    let mut count = 1;
    let mut driver = ptr::null_mut();
    done(ze!(program, zesDriverGet(&raw mut count, &raw mut driver))).unwrap();
    let mut device = ptr::null_mut();
    done(ze!(program, zesDeviceGet(driver, &raw mut count, &raw mut device))).unwrap();
    assert_eq!(memory_state(&program, device), Ok((3 << 20, 3 << 20)));
    let mut properties = zes_device_properties_t::default();
    done(ze!(program, zesDeviceGetProperties(device, &raw mut properties))).unwrap();
    assert_eq!(properties.core.uuid.id, device_properties(&program, 0).uuid.id);
}

fn not_started() {
    let program = Program::start();
    let outcome = memory_state(&program, program.devices[0].cast());
    assert_eq!(outcome, Err(ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED));
}

fn init_drivers() {
    let ze = LevelZero::load().unwrap();
    let Ok(init) = ze.zeInitDrivers() else {
        eprintln!("the loader is older than zeInitDrivers");
        return;
    };
    let mut desc = ze_init_driver_type_desc_t { flags: 1, ..Default::default() };
    let (mut count, mut driver) = (0, ptr::null_mut());
    // SAFETY: all places are valid; the driver array is null where only the count is requested.
    done(unsafe { init(&raw mut count, ptr::null_mut(), &raw mut desc) }).unwrap();
    assert_eq!(count, 1);
    // SAFETY: as above.
    done(unsafe { init(&raw mut count, &raw mut driver, &raw mut desc) }).unwrap();
    assert!(count == 1 && !driver.is_null());
}
