use std::env;

use super::{Unavailable, parse_bytes};

/// The value of an environment variable that configures a backend; `None` if it is not set.
///
/// # Errors
/// A value for which `read` returns `None`. The error names the variable and what was expected.
pub fn read_variable<T>(name: &str, expected: &str, read: fn(&str) -> Option<T>) -> Result<Option<T>, Unavailable> {
    let Some(text) = env::var_os(name) else { return Ok(None) };
    let refused = || Unavailable::new(format!("{name} must be {expected}, but is {text:?}"));
    text.to_str().and_then(|text| read(text.trim())).map(Some).ok_or_else(refused)
}

/// The memory of a device in bytes, from an environment variable; `None` if it is not set.
///
/// # Errors
/// As [`read_variable`], and for 0.
pub fn read_capacity(name: &str) -> Result<Option<u64>, Unavailable> {
    read_variable(name, "a size above 0, such as 16GiB", |text| parse_bytes(text).filter(|bytes| *bytes > 0))
}
