//! Tables of functions, filled by a driver.
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
    // SAFETY: Intel's driver does nothing yet when it is opened.
    let driver = match unsafe { Library::new("libze_intel_gpu.so.1") } {
        Ok(driver) => driver,
        // What requires a GPU's driver requires Intel's.
        Err(error)
            if std::env::var("ACCELERATOR_REQUIRE")
                .is_ok_and(|all| all.split(',').any(|name| name == "xpu")) =>
        {
            return Err(error.into());
        }
        Err(error) => return Ok(Completion::ignored_with(error.to_string())),
    };
    // SAFETY: the type is that of the function.
    let fill = unsafe { driver.get::<ze_pfnGetMemProcAddrTable_t>("zeGetMemProcAddrTable") }?.unwrap();
    let mut table = ze_mem_dditable_t::default();
    // SAFETY: the table is that of version 1.3 and more.
    let result = unsafe { fill(ze_api_version_t::ZE_API_VERSION_1_3, &mut table) };
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);

    // The last entry of version 1.3, and the first of a later one.
    assert!(table.pfnFreeExt.is_some() && table.pfnPutIpcHandle.is_none(), "{table:?}");
    Ok(Completion::Completed)
}
