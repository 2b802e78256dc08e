//! A device that was opened: its handles, and what holds for every call on it.

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
    /// Bytes of the device's memory that the backend has.
    pub(crate) handed_out: AtomicU64,
    /// The error after which the device answers every call with it.
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

    /// Why no calls are made any more: the device is lost, or was opened before a fork.
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

    /// Makes calls that concern this device alone: an answer that it is lost is kept.
    pub(crate) fn run<T>(&self, calls: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        self.check()?;
        calls().inspect_err(|error| {
            if error.kind == DriverErrorKind::DeviceLost {
                let _ = self.lost.set(*error); // the first one counts
            }
        })
    }

    /// Whether the device answers no call any more, so that none of its work is done any more either.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some() || self.is_forked()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_lost() {
            // What was made in the context could not be destroyed: it stays, too.
            mem::forget(Arc::clone(&self.context));
        }
    }
}

/// Makes a call that gives something back, and once more should it fail: else that would be lost for good. Whether it
/// did: not so where the device is lost, and its memory with it.
pub(crate) fn give_back(call: impl Fn() -> DriverResult<()>) -> bool {
    call().or_else(|_| call()).is_ok()
}
