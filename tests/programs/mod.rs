//! Programs that are the same on every driver.

pub(crate) mod bytes;
pub(crate) mod everything;
pub(crate) mod suite;
pub(crate) mod virtual_memory;
