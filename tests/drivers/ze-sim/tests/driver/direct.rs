//! Trials that call the driver's own functions from its tables, because old loaders do not pass these calls on, or make
//! such calls themselves.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use level_zero_sys::ddi::*;
use level_zero_sys::*;
use libloading::Library;

use crate::alone::{self, Alone, bare};
use crate::control;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    const QUIRKS: &str = "ZE_SIM_QUIRKS";
    vec![
        bare("direct::lists_are_waited_for", &[], host_synchronize),
        bare("direct::lists_say_what_they_are", &[], lists),
        bare("direct::devices_are_waited_for", &[], device_synchronize),
        bare("direct::the_last_failure_is_told", &[], last_failure),
        bare("direct::the_clock_is_written_in_ticks", &[], clock),
        bare("direct::an_old_driver_lacks_new_functions", &[("ZE_SIM_API_VERSION", "1.5")], old_driver),
        bare("direct::no_handles_without_the_count", &[(QUIRKS, "no-handles-without-count")], count_first),
        Alone {
            aborts: true,
            ..bare(
                "direct::a_call_after_a_failed_start_crashes",
                &[(QUIRKS, "crash-after-failed-init"), ("ZE_SIM_FAIL", "zeInit@1=0x78000001")],
                after_a_failed_start,
            )
        },
        bare("direct::a_failed_start_may_be_tried_again", &[("ZE_SIM_FAIL_AT", "1=0x78000001")], try_again),
        bare("direct::a_forked_child_has_no_driver", &[], forked),
    ]
}

/// Returns one of the driver's tables in its newest version.
fn table<T: Default>(name: &str) -> T {
    type Fill = unsafe extern "C" fn(ze_api_version_t, *mut c_void) -> ze_result_t;
    // SAFETY: its initialisers have no preconditions.
    let library = unsafe { Library::new(alone::library()) }.unwrap();
    // SAFETY: the API defines this type, except for the table's.
    let fill = unsafe { library.get::<Fill>(format!("{name}ProcAddrTable").as_bytes()) }.unwrap();
    let mut table = T::default();
    let newest = ze_api_version_t::ZE_API_VERSION_CURRENT;
    // SAFETY: the table is valid, and has the newest version's length.
    done(unsafe { fill(newest, (&raw mut table).cast()) }).unwrap();
    // The table's functions are called until the process ends.
    std::mem::forget(library);
    table
}

/// Calls a function of a table.
macro_rules! call {
    ($table:expr, $entry:ident($($argument:expr),* $(,)?)) => {{
        let function = $table.$entry.unwrap();
        // SAFETY: trials pass handles that they created and valid places.
        done(unsafe { function($($argument),*) })
    }};
}

/// Creates a held list with a command that fills a byte.
fn held_list(program: &Program) -> (List, u64) {
    let (list, a) = (program.list(0), program.device_memory(1).unwrap());
    control::hold(list as usize);
    program.fill(list, a, 1, 1).unwrap();
    (list, a)
}

fn host_synchronize() {
    let program = Program::start();
    let lists: ze_command_list_dditable_t = table("zeGetCommandList");
    let (list, _) = held_list(&program);
    assert_eq!(call!(lists, pfnHostSynchronize(list, 0)), Err(NOT_READY));
    assert_eq!(call!(lists, pfnHostSynchronize(list, 1_000_000)), Err(NOT_READY));
    call!(lists, pfnHostSynchronize(list, FOR_EVER)).unwrap();
    program.destroy_list(list).unwrap();
    control::expect_violations(0, &[]);
}

fn lists() {
    let program = Program::start();
    let table: ze_command_list_dditable_t = table("zeGetCommandList");
    let list = program.list_on(0, 0, 1).unwrap();
    let mut ordinal = 0;
    call!(table, pfnGetOrdinal(list, &raw mut ordinal)).unwrap();
    let mut immediate = 0;
    call!(table, pfnIsImmediate(list, &raw mut immediate)).unwrap();
    let (mut device, mut context) = (ptr::null_mut(), ptr::null_mut());
    call!(table, pfnGetDeviceHandle(list, &raw mut device)).unwrap();
    call!(table, pfnGetContextHandle(list, &raw mut context)).unwrap();
    assert_eq!((ordinal, immediate, device, context), (1, 1, program.devices[0], program.context));
    let (context, desc) = (program.context, ze_command_list_desc_t::default());
    let recorded = made(|list| ze!(program, zeCommandListCreate(context, device, &raw const desc, list))).unwrap();
    call!(table, pfnIsImmediate(recorded, &raw mut immediate)).unwrap();
    assert_eq!(immediate, 0);
    assert_eq!(call!(table, pfnHostSynchronize(recorded, FOR_EVER)), Err(NOT_READY));
}

fn device_synchronize() {
    let program = Program::start();
    let devices: ze_device_dditable_t = table("zeGetDevice");
    let held = [held_list(&program), held_list(&program)];
    call!(devices, pfnSynchronize(program.devices[0])).unwrap();
    for (list, a) in held {
        program.destroy_list(list).unwrap();
        program.free(a).unwrap();
    }
    control::expect_violations(0, &[]);
}

fn last_failure() {
    let program = Program::start();
    let drivers: ze_driver_dditable_t = table("zeGetDriver");
    let text = || {
        let mut text = ptr::null();
        call!(drivers, pfnGetLastErrorDescription(program.driver, &raw mut text)).unwrap();
        // SAFETY: the driver's strings are static.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap()
    };
    assert_eq!(text(), "");
    assert!(program.device_memory(64 << 30).is_err());
    assert!(text().contains("UNSUPPORTED_SIZE"), "{}", text());
}

fn clock() {
    let program = Program::start();
    let devices: ze_device_dditable_t = table("zeGetDevice");
    let list = program.list(0);
    let a = program.host_memory(8, 0).unwrap();
    let call =
        ze!(program, zeCommandListAppendWriteGlobalTimestamp(list, a as *mut u64, ptr::null_mut(), 0, ptr::null_mut()));
    done(call).unwrap();
    program.finish(list).unwrap();
    // SAFETY: the trial's own memory, which the command has written by now.
    let written = unsafe { (a as *const u64).read_volatile() };
    let (mut host, mut device) = (0, 0);
    call!(devices, pfnGetGlobalTimestamps(program.devices[0], &raw mut host, &raw mut device)).unwrap();
    // Only a barrier ran after it.
    assert!(device - written < 10, "{written} {device}");
}

fn old_driver() {
    let lists: ze_command_list_dditable_t = table("zeGetCommandList");
    assert!(lists.pfnHostSynchronize.is_none() && lists.pfnAppendMemoryCopy.is_some());
    let global: ze_global_dditable_t = table("zeGetGlobal");
    assert!(global.pfnInitDrivers.is_none() && global.pfnInit.is_some());
}

fn count_first() {
    let global: ze_global_dditable_t = table("zeGetGlobal");
    call!(global, pfnInit(0)).unwrap();
    let drivers: ze_driver_dditable_t = table("zeGetDriver");
    let devices: ze_device_dditable_t = table("zeGetDevice");
    let (mut count, mut driver, mut device) = (1, ptr::null_mut(), ptr::null_mut());
    call!(drivers, pfnGet(&raw mut count, &raw mut driver)).unwrap();
    let ask = |count: &mut u32, place| call!(devices, pfnGet(driver, count, place));
    assert!(ask(&mut 1, &raw mut device).is_err());
    ask(&mut 0, ptr::null_mut()).unwrap();
    ask(&mut 1, &raw mut device).unwrap();
}

fn after_a_failed_start() {
    let global: ze_global_dditable_t = table("zeGetGlobal");
    assert!(call!(global, pfnInit(0)).is_err());
    assert!(call!(global, pfnInit(0)).is_ok());
    std::process::exit(0);
}

fn try_again() {
    let global: ze_global_dditable_t = table("zeGetGlobal");
    assert!(call!(global, pfnInit(0)).is_err());
    assert!(call!(global, pfnInit(0)).is_ok());
}

fn forked() {
    let program = Program::start();
    // SAFETY: the child only calls the driver, which takes no lock in it, and exits immediately.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut device = MaybeUninit::zeroed();
        let mut count = 1;
        let outcome = done(ze!(program, zeDeviceGet(program.driver, &raw mut count, device.as_mut_ptr())));
        let exit = if outcome == Err(ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED) { 0 } else { 1 };
        // SAFETY: exits the child without running the parent's remaining code.
        unsafe { libc::_exit(exit) };
    }
    let mut status = -1;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    program.device_memory(1).unwrap();
}
