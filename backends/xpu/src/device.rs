//! An opened device: its handles, and checks for every call on it.

use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use level_zero_sys::{LevelZero, ze_context_handle_t, ze_device_handle_t};

use crate::answer;
use crate::context::Context;
use crate::devices::Found;
use crate::library::FORKED;

/// The handles of a device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) api: &'static LevelZero,
    pub(crate) found: Found,
    context: Arc<Context>,
    process: u32,
    /// The bytes of device memory that the backend has allocated.
    pub(crate) handed_out: AtomicU64,
    /// The error that lost the device. Every later call returns it.
    lost: OnceLock<DriverError>,
}

impl Device {
    pub(crate) fn new(api: &'static LevelZero, found: Found) -> DriverResult<Arc<Self>> {
        let (context, process) = (Context::of(api, found.driver)?, std::process::id());
        let (handed_out, lost) = (AtomicU64::new(0), OnceLock::new());
        Ok(Arc::new(Self { api, found, context, process, handed_out, lost }))
    }

    pub(crate) fn raw(&self) -> ze_device_handle_t {
        self.found.device
    }

    pub(crate) fn context(&self) -> ze_context_handle_t {
        self.context.raw
    }

    /// Returns the error if no calls can be made any more, because the device is lost or was opened before a fork.
    pub(crate) fn check(&self) -> DriverResult<()> {
        match self.lost.get() {
            Some(error) => Err(*error),
            None if self.is_forked() => Err(answer::refused("zeInit", DriverErrorKind::DeviceLost, FORKED)),
            None => Ok(()),
        }
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Makes calls that concern only this device. If one reports that the device is lost, the error is kept.
    pub(crate) fn run<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.check()?;
        calls().inspect_err(|error| {
            if error.kind == DriverErrorKind::DeviceLost {
                let _ = self.lost.set(*error); // only the first error is kept
            }
        })
    }

    /// Whether the device is lost, so that it accepts no calls and does no more work.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some() || self.is_forked()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_lost() {
            // Objects made in the context could not be destroyed, so the context is leaked too.
            mem::forget(Arc::clone(&self.context));
        }
    }
}

/// Makes a call that releases something, and repeats it once if it fails, as the resource would otherwise be leaked.
/// Returns whether it succeeded. It fails if the device is lost; the memory is lost with it.
pub(crate) fn give_back(call: impl Fn() -> DriverResult<()>) -> bool {
    call().or_else(|_| call()).is_ok()
}
