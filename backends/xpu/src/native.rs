//! Handles shared with Level Zero, in both directions.
#![allow(unsafe_code)] // lists of other libraries

use accelerator_core::DriverResult;
use level_zero_sys::{
    LevelZero, ze_command_list_handle_t, ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t,
};

use crate::queue::{Order, XpuStream};
use crate::xpu::Xpu;

impl Xpu {
    /// Returns the driver, the device, and the context, which all devices of the driver share and which exists as long
    /// as this value lives.
    pub fn native(&self) -> (ze_driver_handle_t, ze_device_handle_t, ze_context_handle_t) {
        (self.device.found.driver, self.device.raw(), self.device.context())
    }

    /// Returns the loader, for functions that this crate does not call.
    pub fn level_zero(&self) -> &'static LevelZero {
        self.device.api
    }

    /// Wraps an immediate command list that another library made in the context, for
    /// [`Accelerator::external_stream`](accelerator_core::Accelerator::external_stream). It need not be in order: this
    /// library orders its own commands.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// * `list` is an asynchronous immediate command list of this device, made in this context.
    /// * It lives as long as the returned stream; with `external_stream`, that is as long as the process.
    /// * Nothing else adds commands to it while this library does: Level Zero requires that.
    pub unsafe fn adopt(&self, list: ze_command_list_handle_t) -> DriverResult<XpuStream> {
        self.stream_of((Order::Barriers, false), || Ok(list))
    }
}

impl XpuStream {
    /// Returns the immediate command list. It is valid as long as this value lives. Only one thread at a time may add
    /// commands to it, so add them only inside [`submit`](Self::submit).
    pub fn native(&self) -> ze_command_list_handle_t {
        self.0.list
    }

    /// Adds your own commands to the list, after all earlier ones and before all later ones. The order of several
    /// commands within one call follows Level Zero's rules: with barriers or events between them, it is kept on every
    /// driver.
    ///
    /// `commands` must not use this stream in any other way, because its lock is held.
    ///
    /// # Errors
    /// Errors of `commands`; an error if the device is lost. [`InvalidArgument`] while the stream captures, since these
    /// commands could not be repeated.
    ///
    /// [`InvalidArgument`]: accelerator_core::DriverErrorKind::InvalidArgument
    pub fn submit(&self, commands: impl FnOnce(ze_command_list_handle_t) -> DriverResult<()>) -> DriverResult<()> {
        self.0.device.captures.refuse_captured(self.0.number, "submit")?;
        self.0.submit(commands)
    }
}
