//! The tables that the loader requests. Each is filled exactly as far as the requested version defines it.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

use std::ffi::c_void;

use level_zero_sys::ddi::*;
use level_zero_sys::{ze_api_version_t, ze_result_t};

/// The initial value of a table entry.
const UNTOUCHED: usize = 0x5a5a_5a5a;

const SUCCESS: ze_result_t = ze_result_t::ZE_RESULT_SUCCESS;

fn version(minor: u32) -> ze_api_version_t {
    ze_api_version_t(1 << 16 | minor)
}

/// Fills a table as the loader does and returns the indices of the entries written.
fn filled<T>(fill: unsafe extern "C" fn(ze_api_version_t, *mut T) -> ze_result_t, minor: u32) -> Vec<usize> {
    let mut places = vec![UNTOUCHED; size_of::<T>() / size_of::<usize>()];
    // SAFETY: the table has the newest version's length.
    assert_eq!(unsafe { fill(version(minor), places.as_mut_ptr().cast()) }, SUCCESS);
    assert!(places.iter().all(|entry| *entry != 0));
    (0..places.len()).filter(|place| places[*place] != UNTOUCHED).collect()
}

/// Returns the index of an entry in its table.
macro_rules! place {
    ($table:ty, $entry:ident) => {
        std::mem::offset_of!($table, $entry) / size_of::<usize>()
    };
}

/// The length of a table in the oldest version, and the versions that add one of our functions to it. The lengths come
/// from the headers shipped with loaders 1.0, 1.8.12 (specification 1.4), 1.10 (1.6), 1.13 (1.7) and 1.16 (1.9).
#[test]
fn entries_come_with_their_versions() {
    let global = |minor| filled(ze_sim::zeGetGlobalProcAddrTable, minor);
    assert_eq!([global(0), global(9)], [[0], [0]]);
    assert_eq!(global(10), [0, 1], "zeInitDrivers");

    type Lists = ze_command_list_dditable_t;
    let lists = |minor| filled(ze_sim::zeGetCommandListProcAddrTable, minor);
    let entries_of_1_4 = 28;
    assert!(lists(4).iter().all(|place| *place < entries_of_1_4));
    assert_eq!(lists(0), lists(5));
    assert!(!lists(5).contains(&place!(Lists, pfnHostSynchronize)));
    assert!(lists(6).contains(&place!(Lists, pfnHostSynchronize)));
    let new_in_1_9 = [place!(Lists, pfnGetDeviceHandle), place!(Lists, pfnIsImmediate)];
    assert!(new_in_1_9.iter().all(|place| !lists(8).contains(place) && lists(9).contains(place)));

    type Devices = ze_device_dditable_t;
    let devices = |minor| filled(ze_sim::zeGetDeviceProcAddrTable, minor);
    let entries_of_1_0 = 14;
    assert!(devices(0).iter().all(|place| *place < entries_of_1_0));
    for (minor, entry) in [
        (1, place!(Devices, pfnGetGlobalTimestamps)),
        (3, place!(Devices, pfnPciGetPropertiesExt)),
        (7, place!(Devices, pfnGetRootDevice)),
        (14, place!(Devices, pfnSynchronize)),
    ] {
        assert!(!devices(minor - 1).contains(&entry) && devices(minor).contains(&entry), "{minor}");
    }

    let drivers = |minor| filled(ze_sim::zeGetDriverProcAddrTable, minor);
    let description = place!(ze_driver_dditable_t, pfnGetLastErrorDescription);
    assert!(!drivers(5).contains(&description) && drivers(6).contains(&description));
    assert_eq!(
        filled(ze_sim::zeGetContextProcAddrTable, 0).len() + 1,
        filled(ze_sim::zeGetContextProcAddrTable, 1).len()
    );

    for (entry, table) in [
        (place!(zes_device_dditable_t, pfnGet), [4, 5].map(|minor| filled(ze_sim::zesGetDeviceProcAddrTable, minor))),
        (place!(zes_driver_dditable_t, pfnGet), [4, 5].map(|minor| filled(ze_sim::zesGetDriverProcAddrTable, minor))),
        (place!(zes_global_dditable_t, pfnInit), [4, 5].map(|minor| filled(ze_sim::zesGetGlobalProcAddrTable, minor))),
    ] {
        assert!(!table[0].contains(&entry) && table[1].contains(&entry));
    }
}

#[test]
fn a_newer_loader_gets_what_there_is() {
    let newest = filled(ze_sim::zeGetCommandListProcAddrTable, 15);
    assert_eq!(filled(ze_sim::zeGetCommandListProcAddrTable, 99), newest);
}

#[test]
fn what_cannot_be_filled_is_refused() {
    let mut table = ze_mem_dditable_t::default();
    let two = ze_api_version_t(2 << 16);
    // SAFETY: the table is valid.
    let refused = unsafe { ze_sim::zeGetMemProcAddrTable(two, &raw mut table) };
    assert_eq!(refused, ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
    assert!(table.pfnFree.is_none());
    // SAFETY: null is refused.
    let refused = unsafe { ze_sim::zeGetMemProcAddrTable(version(4), std::ptr::null_mut()) };
    assert_eq!(refused, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    assert_eq!(ze_sim::zeGetImageProcAddrTable(version(4), std::ptr::null_mut()), refused);
}

#[test]
fn tables_of_what_is_not_simulated_stay_as_they_are() {
    let mut places = [UNTOUCHED; 8];
    let table: *mut c_void = places.as_mut_ptr().cast();
    assert_eq!(ze_sim::zetGetDebugProcAddrTable(version(15), table), SUCCESS);
    assert_eq!(places, [UNTOUCHED; 8]);
}

/// The names that a loader of 1.8.12 looks for in every driver.
#[test]
fn every_table_that_a_loader_looks_for_is_exported() {
    const NAMES: &str = "zeGetCommandList zeGetCommandQueue zeGetContext zeGetDevice zeGetDeviceExp
        zeGetDriver zeGetEvent zeGetEventExp zeGetEventPool zeGetFabricEdgeExp zeGetFabricVertexExp
        zeGetFence zeGetGlobal zeGetImage zeGetImageExp zeGetKernel zeGetKernelExp zeGetMem zeGetModule
        zeGetModuleBuildLog zeGetPhysicalMem zeGetSampler zeGetVirtualMem zesGetDevice zesGetDiagnostics
        zesGetDriver zesGetEngine zesGetFabricPort zesGetFan zesGetFirmware zesGetFrequency zesGetLed
        zesGetMemory zesGetPerformanceFactor zesGetPower zesGetPsu zesGetRas zesGetScheduler zesGetStandby
        zesGetTemperature zetGetCommandList zetGetContext zetGetDebug zetGetDevice zetGetKernel zetGetMetric
        zetGetMetricGroup zetGetMetricGroupExp zetGetMetricQuery zetGetMetricQueryPool zetGetMetricStreamer
        zetGetModule zetGetTracerExp";
    let path = std::env::current_exe().unwrap().with_file_name("libze_sim.so");
    // SAFETY: its initialisers have no preconditions.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    let missing = NAMES.split_whitespace().filter(|name| {
        let symbol = format!("{name}ProcAddrTable");
        // SAFETY: only looks up its address.
        unsafe { library.get::<*const c_void>(symbol.as_bytes()) }.is_err()
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}
