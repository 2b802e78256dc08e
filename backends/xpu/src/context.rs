//! The context that all devices of a driver share, so that each can access the memory of the others.
#![allow(unsafe_code)] // calls the driver

use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{lock, try_twice};
use level_zero_sys::{LevelZero, ze_context_desc_t, ze_context_handle_t, ze_driver_handle_t};

use crate::answer::ask;

/// A Level Zero context with all devices of a driver.
#[derive(Debug)]
pub(crate) struct Context {
    api: &'static LevelZero,
    driver: ze_driver_handle_t,
    pub(crate) raw: ze_context_handle_t,
    process: u32,
}

// SAFETY: The handles are only names; any thread may use them.
unsafe impl Send for Context {}
// SAFETY: As for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the driver's context, creating it if necessary.
    pub(crate) fn of(api: &'static LevelZero, driver: ze_driver_handle_t) -> DriverResult<Arc<Self>> {
        static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
        let mut contexts = lock(&CONTEXTS);
        contexts.retain(|context| context.strong_count() > 0);
        let there = contexts.iter().filter_map(Weak::upgrade).find(|context| context.driver == driver);
        if let Some(context) = there {
            return Ok(context);
        }
        let (description, mut raw) = (ze_context_desc_t::default(), ptr::null_mut());
        // SAFETY: The `stype` of the description is set, and the call writes a handle.
        unsafe { ask!(api, zeContextCreate(driver, &description, &mut raw)) }?;
        let context = Arc::new(Self { api, driver, raw, process: std::process::id() });
        contexts.push(Arc::downgrade(&context));
        Ok(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            // SAFETY: It was made by `of`. Everything made in it holds a reference, so all of that has been destroyed.
            try_twice(|| unsafe { ask!(self.api, zeContextDestroy(self.raw)) });
        }
    }
}
