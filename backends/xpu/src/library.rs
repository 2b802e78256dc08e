//! The loader and its drivers, initialized once per process.
#![allow(unsafe_code)] // calls the loader

use std::ptr;

use accelerator_core::backend_kit::Probed;
use accelerator_core::{DriverResult, Unavailable};
use level_zero_sys::{
    LevelZero, ze_driver_handle_t, ze_init_driver_type_desc_t, ze_init_driver_type_flag_t, ze_init_flag_t,
    ze_result_t as Code,
};

use crate::answer::{self, ask};
use crate::devices::{self, Found, list};

/// The loader with its drivers initialized, and their GPUs.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) api: LevelZero,
    pub(crate) devices: Vec<Found>,
}

static LIBRARY: Probed<Library> = Probed::new(FORKED);

/// Returns the loader, or why none of its functions may be called. After a failed `zeInit`, some loaders crash in any
/// other function, so the loader is initialized only once per process. It also reads `ZE_AFFINITY_MASK` and similar
/// variables only once.
pub(crate) fn library() -> Result<&'static Library, Unavailable> {
    LIBRARY.get(load)
}

pub(crate) const FORKED: &str = "Level Zero does not work in a process that was forked from one that used it: use \
                                 Level Zero only after the fork, or start a new program";

const INSTALL: &str = "install the loader (Debian, Ubuntu: libze1) and the driver of the GPU (libze-intel-gpu1; \
                       on older systems intel-opencl-icd)";

fn load() -> Result<Library, Unavailable> {
    let api = LevelZero::load().map_err(|error| Unavailable::new(format!("{error}: {INSTALL}")))?;
    let drivers = drivers(&api).map_err(|error| {
        Unavailable::new(match answer::is(&error, Code::ZE_RESULT_ERROR_UNINITIALIZED) {
            true => format!(
                "no Level Zero driver finds a GPU{} ({error}): {INSTALL}, and check that you may read and write \
                 /dev/dri/renderD*",
                masked()
            ),
            false => format!("Level Zero cannot be initialized: {error}"),
        })
    })?;
    let found = devices::find(&api, drivers);
    let devices = found.map_err(|error| Unavailable::new(format!("Level Zero lists no devices: {error}")))?;
    if devices.is_empty() {
        return Err(Unavailable::new(format!("Level Zero finds no GPU{}", masked())));
    }
    Ok(Library { api, devices })
}

/// Initializes and returns the drivers of GPUs. It tries the newer call first, since other libraries use that too and
/// the two cannot be mixed. If that is missing or fails, as with an older driver, it uses the older call.
fn drivers(api: &LevelZero) -> DriverResult<Vec<ze_driver_handle_t>> {
    let flags = ze_init_driver_type_flag_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU.0;
    let mut wanted = ze_init_driver_type_desc_t { flags, ..Default::default() };
    let wanted = &raw mut wanted;
    // SAFETY: The `stype` of the description is set; the call writes a number and at most that many handles.
    let newer = |count, drivers| unsafe { ask!(api, zeInitDrivers(count, drivers, wanted)) };
    list(ptr::null_mut(), newer).or_else(|_| {
        // SAFETY: The flag is valid for the call.
        unsafe { ask!(api, zeInit(ze_init_flag_t::ZE_INIT_FLAG_GPU_ONLY.0)) }?;
        // SAFETY: The call writes a number and at most that many handles.
        list(ptr::null_mut(), |count, drivers| unsafe { ask!(api, zeDriverGet(count, drivers)) })
    })
}

/// Returns a note on the user's choice of devices, which may exclude all of them.
fn masked() -> String {
    std::env::var("ZE_AFFINITY_MASK").map_or_else(|_| String::new(), |mask| format!(" with ZE_AFFINITY_MASK={mask}"))
}

/// Returns the library, or the error for opening a device without probing first.
pub(crate) fn opened() -> DriverResult<&'static Library> {
    LIBRARY.opened("zeInit", load)
}
