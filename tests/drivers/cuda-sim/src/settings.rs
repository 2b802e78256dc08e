//! Settings from the environment beyond those that all simulated drivers share, read at the first call of the process.

use sim_engine::{Environment, number};

use crate::code::Code;
use crate::state::Driver;

/// The simulated driver version: CUDA 13.0, or 10.0 for the old driver.
const DEFAULT_VERSION: i32 = if cfg!(feature = "old-driver") { 10_000 } else { 13_000 };

pub(crate) struct Settings {
    pub(crate) common: sim_engine::Settings<Code>,
    /// How many peers one device can be given access to.
    pub(crate) peers: usize,
    /// 1000 times the major number plus 10 times the minor.
    pub(crate) driver_version: i32,
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    /// Whether physical memory can be exported, and used by network cards.
    pub(crate) exports: bool,
    /// What calls about a stream that is destroyed return.
    pub(crate) destroyed_stream: Code,
    /// Whether a setting was invalid. `cuInit` then fails, so that no test runs with less than it requested.
    pub(crate) mistake: bool,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let mut environment = Environment::of::<Driver>("CUDA", "cuInit");
        Self {
            common: sim_engine::Settings::read(&mut environment),
            peers: environment.read("PEERS", number).unwrap_or(8),
            driver_version: environment.read("DRIVER_VERSION", number).unwrap_or(DEFAULT_VERSION),
            capability: environment.read("CAPABILITY", capability).unwrap_or((9, 0)),
            exports: environment.read("EXPORTS", number).unwrap_or(1_u8) > 0,
            destroyed_stream: environment.read("DESTROYED_STREAM", number).map_or(Code::INVALID_HANDLE, Code),
            mistake: environment.mistake(),
        }
    }
}

fn capability(text: &str) -> Option<(i32, i32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
