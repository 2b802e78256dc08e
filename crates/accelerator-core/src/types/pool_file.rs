use std::path::PathBuf;
use std::sync::Arc;

use super::{Device, MemPoolId, printable};

/// Why the contents of a paused memory pool cannot be written to a file, or read from it.
#[derive(thiserror::Error)]
#[error("{device}: memory pool {}: {}: {error}", pool.with_name(name.as_deref()), printable(path))]
pub struct PoolFileError {
    /// The device.
    pub device: Device,
    /// The pool.
    pub pool: MemPoolId,
    /// The name of the pool, if it has one.
    pub name: Option<Arc<str>>,
    /// The file.
    pub path: PathBuf,
    /// The error of the file system.
    #[source]
    pub error: std::io::Error,
}

debug_as_display!(PoolFileError);
