//! An opened device: its handles, and checks for every call on it.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Captures, Health};
use level_zero_sys::{LevelZero, ze_context_handle_t, ze_device_handle_t};

use crate::context::Context;
use crate::devices::Found;
use crate::library::FORKED;
use crate::work::Work;

/// The handles of a device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) api: &'static LevelZero,
    pub(crate) found: Found,
    context: Arc<Context>,
    pub(crate) health: Health,
    /// The bytes of device memory that the backend has allocated.
    pub(crate) handed_out: AtomicU64,
    pub(crate) captures: Captures<Work>,
}

impl Device {
    pub(crate) fn new(api: &'static LevelZero, found: Found) -> DriverResult<Arc<Self>> {
        let (context, health) = (Context::of(api, found.driver)?, Health::new("zeInit", FORKED));
        Ok(Arc::new(Self { api, found, context, health, handed_out: AtomicU64::new(0), captures: Captures::new() }))
    }

    pub(crate) fn raw(&self) -> ze_device_handle_t {
        self.found.device
    }

    pub(crate) fn context(&self) -> ze_context_handle_t {
        self.context.raw
    }

    /// Whether the device is lost, or was opened before a fork, so that it accepts no calls and does no more work here.
    pub(crate) fn is_lost(&self) -> bool {
        self.health.check().is_err()
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
