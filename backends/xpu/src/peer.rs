//! Copies between devices.
#![allow(unsafe_code)] // the core relies on the contract of `PeerCopies`

use std::num::NonZeroU64;

use accelerator_core::{DriverError, DriverErrorKind, DriverResult, PeerCopies, Place};

use crate::answer::ask;
use crate::event::XpuEvent;
use crate::memory::XpuPtr;
use crate::queue::XpuStream;
use crate::xpu::Xpu;

impl Xpu {
    /// Whether kernels and copies of this device can access the memory of another one directly. Level Zero:
    /// `zeDeviceCanAccessPeer`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn can_access_peer(&self, peer: &Self) -> DriverResult<bool> {
        let (own, other) = (self.device.raw(), peer.device.raw());
        [&self.device, &peer.device].into_iter().try_for_each(|device| device.health.check())?;
        let mut can = u8::from(own == other);
        if can == 0 && self.device.context() == peer.device.context() {
            // SAFETY: The call writes a boolean.
            unsafe { ask!(self.device.api, zeDeviceCanAccessPeer(own, other, &mut can)) }?;
        }
        Ok(can != 0)
    }
}

// SAFETY: A copy between devices is a command like any other, and all devices of a context see its events.
unsafe impl PeerCopies<Xpu> for Xpu {
    unsafe fn copy_from(
        &self,
        dst: XpuPtr,
        source: &Xpu,
        src: XpuPtr,
        len: NonZeroU64,
        stream: &XpuStream,
    ) -> DriverResult<()> {
        if !self.can_access_peer(source)? {
            let why = "the devices cannot access each other's memory";
            return Err(DriverError::refused(DriverErrorKind::Unsupported, "zeDeviceCanAccessPeer", why));
        }
        // SAFETY: The caller promises two valid ranges, which both belong to the context.
        unsafe { self.submit_copy(Place::Device(dst), Place::Device(src), len, stream) }
    }

    fn wait(&self, stream: &XpuStream, event: &XpuEvent) -> DriverResult<()> {
        event.wait_on(&stream.0)
    }
}
