//! Handles of Level Zero, both ways.
#![allow(unsafe_code)] // lists of others

use accelerator_core::DriverResult;
use level_zero_sys::{
    LevelZero, ze_command_list_handle_t, ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t,
};

use crate::queue::{Order, XpuStream};
use crate::xpu::Xpu;

impl Xpu {
    /// The driver, the device, and the context, which all devices of the driver share and which stays while this lives.
    pub fn native(&self) -> (ze_driver_handle_t, ze_device_handle_t, ze_context_handle_t) {
        (self.device.found.driver, self.device.raw(), self.device.context())
    }

    /// The loader, for functions that this crate does not call.
    pub fn level_zero(&self) -> &'static LevelZero {
        self.device.api
    }

    /// An immediate command list that another library made in the context, for
    /// [`Accelerator::external_stream`](accelerator_core::Accelerator::external_stream). It need not be in order:
    /// what is submitted here is.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// * `list` is an asynchronous immediate command list of this device, made in this context.
    /// * It lives as long as what is returned, which with `external_stream` is as long as the process.
    /// * Nobody else gives it commands while this library does: Level Zero asks for that.
    pub unsafe fn adopt(&self, list: ze_command_list_handle_t) -> DriverResult<XpuStream> {
        self.stream_of((Order::Barriers, false), || Ok(list))
    }
}

impl XpuStream {
    /// The immediate command list. It lives as long as this, and takes one command at a time: give it commands inside
    /// [`submit`](Self::submit) only.
    pub fn native(&self) -> ze_command_list_handle_t {
        self.0.list
    }

    /// Gives the list commands of one's own, behind all that it has; what is submitted afterwards comes behind them.
    /// Of several commands in one call the order among themselves is as Level Zero has it: barriers or events keep it
    /// on every driver.
    ///
    /// `commands` must not use this stream otherwise: its lock is held.
    ///
    /// # Errors
    /// What `commands` says; that the device is lost.
    pub fn submit(
        &self,
        commands: impl FnOnce(ze_command_list_handle_t) -> DriverResult<()>,
    ) -> DriverResult<()> {
        self.0.submit(commands)
    }
}
