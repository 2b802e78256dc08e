//! Memory that other processes map: its bytes are in a file without a place in the file system.
//!
//! Files have names such as `cuda-sim-0-1a2b`, with the device and a number that no other file has, which show in
//! `/proc`. So a process recognizes what another one has exported.

use std::ffi::CString;
use std::fs::{File, OpenOptions, read_link};
use std::os::fd::{AsRawFd, RawFd};

use crate::backing::Backing;
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::face::Face;

/// A file with the memory of a device.
#[derive(Debug)]
pub struct Exported {
    /// The device.
    pub device: usize,
    file: File,
}

/// How the names of a driver's files begin.
fn prefix<F: Face>() -> String {
    F::PREFIX.trim_end_matches('_').to_lowercase().replace('_', "-")
}

impl<F: Face> Engine<F> {
    /// Returns a descriptor of a file with the bytes of an allocation, and the start of the allocation. The driver
    /// keeps the descriptor as long as the allocation.
    pub fn export(&mut self, address: u64) -> Result<(u64, RawFd), Error> {
        let (start, allocation) = self.memory.containing(address).ok_or(Error::Unknown)?;
        let name = self.new_name(allocation.device);
        let allocation = self.memory.at_mut(start).ok_or(Error::Unknown)?;
        let file = allocation.backing.file(&name).ok_or(Error::OutOfHostMemory)?;
        Ok((start, file.as_raw_fd()))
    }

    /// Returns a file with the bytes of physical memory.
    pub fn export_physical(&mut self, handle: u64) -> Result<File, Error> {
        let device = self.virtual_memory.physical(handle).ok_or(Error::Unknown)?.device;
        let name = self.new_name(device);
        let physical = self.virtual_memory.physical_mut(handle).ok_or(Error::Unknown)?;
        let file = physical.backing.file(&name).ok_or(Error::OutOfHostMemory)?;
        file.try_clone().map_err(|_| Error::OutOfHostMemory)
    }

    /// Adds an allocation of another process, and returns its address.
    pub fn import(&mut self, exported: Exported, bytes: u64, owner: Handle) -> Result<u64, Error> {
        let device = exported.device;
        self.add_imported(device, exported.mapped(bytes)?, owner)
    }

    /// Adds physical memory of another process, and returns its handle.
    pub fn import_physical(&mut self, exported: Exported) -> Result<u64, Error> {
        let bytes = exported.file.metadata().map_err(|_| Error::Unknown)?.len();
        let device = exported.device;
        Ok(self.add_imported_physical(device, exported.mapped(bytes)?))
    }

    fn new_name(&mut self, device: usize) -> CString {
        let name = format!("{}-{device}-{:x}-{:x}", prefix::<F>(), std::process::id(), self.new_handle());
        CString::new(name).unwrap_or_default()
    }
}

impl Exported {
    /// Opens what a process, or this one, has open as this descriptor. Returns `None` if it is not memory of a device
    /// of this driver.
    pub fn open<F: Face>(process: u32, descriptor: RawFd) -> Option<Self> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let link = read_link(&path).ok()?;
        let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(&prefix::<F>())?.strip_prefix('-')?;
        let device = name.split('-').next()?.parse().ok()?;
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        Some(Self { device, file })
    }

    fn mapped(self, bytes: u64) -> Result<Backing, Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::Unknown)?;
        Backing::of_file(self.file, bytes).ok_or(Error::OutOfHostMemory)
    }
}
