use std::env;

use crate::types::{Unavailable, parse_bytes};

/// The value of an environment variable that configures a backend; `None` if it is not set.
///
/// ```
/// use accelerator_core::backend_kit::read_variable;
///
/// let devices = read_variable("ACCELERATOR_MINE_DEVICES", "a number of devices", |text| text.parse().ok())?;
/// let devices: u32 = devices.unwrap_or(1);
/// # assert_eq!(devices, 1);
/// # Ok::<(), accelerator_core::Unavailable>(())
/// ```
///
/// # Errors
/// A value for which `read` returns `None`. The error names the variable and what was expected.
pub fn read_variable<T>(name: &str, expected: &str, read: fn(&str) -> Option<T>) -> Result<Option<T>, Unavailable> {
    let Some(text) = env::var_os(name) else { return Ok(None) };
    let refused = || Unavailable::new(format!("{name} must be {expected}, but is {text:?}"));
    text.to_str().and_then(|text| read(text.trim())).map(Some).ok_or_else(refused)
}

/// The memory of a device in bytes, from an environment variable such as `ACCELERATOR_OPENCL_CAPACITY`; `None` if it
/// is not set.
///
/// ```
/// use accelerator_core::backend_kit::{Accounting, read_capacity};
///
/// let of_the_device = 8 << 30;
/// let accounting = Accounting::new(read_capacity("ACCELERATOR_MINE_CAPACITY")?.unwrap_or(of_the_device));
/// # assert_eq!(accounting.memory_info().total, of_the_device);
/// # Ok::<(), accelerator_core::Unavailable>(())
/// ```
///
/// # Errors
/// As [`read_variable`], and for 0.
pub fn read_capacity(name: &str) -> Result<Option<u64>, Unavailable> {
    read_variable(name, "a size above 0, such as 16GiB", |text| parse_bytes(text).filter(|bytes| *bytes > 0))
}
