//! Function tables, filled by a driver.
#![allow(clippy::unwrap_used, reason = "a trial that panics has failed")]

use level_zero_sys::ddi::{ze_mem_dditable_t, ze_pfnGetMemProcAddrTable_t};
use level_zero_sys::{ze_api_version_t, ze_result_t};
use libloading::Library;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() {
    let trials = vec![Trial::ignorable_test("a_driver_fills_what_was_there_then", filled)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn filled() -> Result<Completion, Failed> {
    // SAFETY: Opening Intel's driver does not start anything.
    let driver = match unsafe { Library::new("libze_intel_gpu.so.1") } {
        Ok(driver) => driver,
        // A machine that must have the driver of an Intel GPU must have this library.
        Err(error)
            if std::env::var("ACCELERATOR_REQUIRE").is_ok_and(|all| all.split(',').any(|name| name == "xpu")) =>
        {
            return Err(error.into());
        }
        Err(error) => return Ok(Completion::ignored_with(error.to_string())),
    };
    // SAFETY: The type is that of the function.
    let fill = unsafe { driver.get::<ze_pfnGetMemProcAddrTable_t>("zeGetMemProcAddrTable") }?.unwrap();
    let mut table = ze_mem_dditable_t::default();
    // SAFETY: The table has all entries of version 1.3, and more.
    let result = unsafe { fill(ze_api_version_t::ZE_API_VERSION_1_3, &mut table) };
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);

    // These are the last entry of version 1.3 and the first of a later version.
    assert!(table.pfnFreeExt.is_some() && table.pfnPutIpcHandle.is_none(), "{table:?}");
    Ok(Completion::Completed)
}
