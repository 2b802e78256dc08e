//! Starting the driver, its version, and descriptions of errors.

use std::ffi::c_char;

use sim_engine::out::Out;

use crate::code::{self, Code, Outcome};
use crate::gate::{exports, required};
use crate::state::{LOCK, Session};

exports! {
    /// Starts the driver in this process; its forked children cannot use it.
    fn cuInit(flags: u32) [Nothing] => safe init;
    /// Returns the simulated version: 1000 times the major number plus 10 times the minor.
    fn cuDriverGetVersion(version: Out<'_, i32>) [Nothing] => safe version;
    /// Returns the name of a code.
    fn cuGetErrorName(error: i32, name: Out<'_, *const c_char>) [Nothing] => safe error_name;
    /// Returns the description of a code.
    fn cuGetErrorString(error: i32, text: Out<'_, *const c_char>) [Nothing] => safe error_text;
}

fn init(driver: &mut Session, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if driver.settings.mistake {
        return Err(Code::UNKNOWN);
    }
    if !driver.initialised {
        driver.find_devices()?;
        driver.initialised = true;
        LOCK.own();
    }
    Ok(())
}

fn version(driver: &mut Session, version: Out<'_, i32>) -> Outcome {
    required(version)?.write(driver.settings.driver_version);
    Ok(())
}

fn error_name(_: &mut Session, error: i32, name: Out<'_, *const c_char>) -> Outcome {
    let known = code::name(error);
    required(name)?.write(known.map_or(std::ptr::null(), |name| name.as_ptr()));
    required(known).map(drop)
}

fn error_text(_: &mut Session, error: i32, text: Out<'_, *const c_char>) -> Outcome {
    let known = code::text(error);
    required(text)?.write(known.map_or(std::ptr::null(), |text| text.as_ptr()));
    required(known).map(drop)
}
