//! Copies between devices.
#![allow(unsafe_code)] // calls the driver

use std::num::NonZeroU64;
use std::sync::Mutex;

use accelerator_core::backend_kit::{byte_count, lock};
use accelerator_core::{DriverResult, PeerCopies};
use cudarc::driver::sys::{CUdevice, CUresult as Code};

use crate::answer;
use crate::calls::call;
use crate::cuda::Cuda;
use crate::memory::CudaPtr;
use crate::stream::{CudaEvent, CudaStream};

/// The peers tried so far, and whether this device can access their memory.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<Vec<(CUdevice, bool)>>);

impl Cuda {
    /// Lets kernels and copies of this device access the memory of another one directly, if the machine supports that.
    /// Returns whether it does. CUDA: `cuCtxEnablePeerAccess`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn enable_peer_access(&self, peer: &Self) -> DriverResult<bool> {
        let (own, other) = (self.context.device, peer.context.device);
        if own == other {
            return Ok(true);
        }
        // The lock is held across the driver calls so that each pair is tried only once. Only first copies wait for it.
        let mut tried = lock(&self.peers.0);
        if let Some((_, can)) = tried.iter().find(|(device, _)| *device == other) {
            return Ok(*can);
        }
        let mut can = 0;
        // SAFETY: The call writes a number.
        let ask = || unsafe { call!(cuDeviceCanAccessPeer(&mut can, own, other)) };
        self.context.run_with_peer(&peer.context, ask)?;
        if can != 0 {
            // SAFETY: The other context is retained, and 0 is the only flag.
            let enable = || unsafe { call!(cuCtxEnablePeerAccess(peer.context.raw(), 0)) };
            match self.context.run_with_peer(&peer.context, enable) {
                Err(error) if answer::is(&error, Code::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) => {}
                // The number of peers of a device is limited. Beyond the limit, copies go through the host.
                Err(error) if answer::is(&error, Code::CUDA_ERROR_TOO_MANY_PEERS) => can = 0,
                enabled => enabled?,
            }
        }
        if let Some(pager) = peer.pager.as_ref().filter(|_| can != 0) {
            pager.admit(own)?;
        }
        tried.push((other, can != 0));
        Ok(can != 0)
    }
}

// SAFETY: The driver orders a copy between devices like any other work of its stream, and waits for another device's
// events just as for its own.
unsafe impl PeerCopies<Cuda> for Cuda {
    unsafe fn copy_from(
        &self,
        dst: CudaPtr,
        source: &Cuda,
        src: CudaPtr,
        len: NonZeroU64,
        stream: &CudaStream,
    ) -> DriverResult<()> {
        let _ = self.enable_peer_access(source); // without peer access the driver goes through the host
        let (on, of) = (self.context.raw(), source.context.raw());
        let (to, from, len) = (dst.native(), src.native(), byte_count(len));
        self.context.run_with_peer(&source.context, || {
            // SAFETY: The caller promises two valid ranges, each in the memory of its context.
            unsafe { call!(cuMemcpyPeerAsync(to, on, from, of, len, stream.native())) }
        })
    }

    fn wait(&self, stream: &CudaStream, event: &CudaEvent) -> DriverResult<()> {
        event.wait_on(stream)
    }
}
