//! What other processes can open: memory and events.

use std::fs::File;
use std::os::fd::RawFd;
use std::path::Path;

use sim_engine::Exported;

use crate::code::{Code, Outcome};
use crate::event::Event;
use crate::state::{Driver, Handle};

/// `CUipcMemHandle` or `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; 64]);

/// What a handle says: a word for its kind, the process that made it, and two numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    kind: u64,
    process: u32,
    descriptor: RawFd,
    pub(crate) bytes: u64,
    /// The address in the process that made it.
    address: u64,
}

const MEMORY: u64 = u64::from_le_bytes(*b"sim-mem\0");
const EVENT: u64 = u64::from_le_bytes(*b"sim-evt\0");

impl Named {
    fn handle(self) -> IpcHandle {
        let mut bytes = [0; 64];
        let process = u64::from(self.process) | u64::from(self.descriptor as u32) << 32;
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.kind, process, self.bytes, self.address]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        IpcHandle(bytes)
    }

    /// Reads a handle of this kind, which another process must have made.
    fn read(handle: IpcHandle, kind: u64) -> Outcome<Self> {
        let mut numbers =
            handle.0.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let mut next = || numbers.next().unwrap_or_default();
        let (found, process, bytes, address) = (next(), next(), next(), next());
        let named = Self { kind, process: process as u32, descriptor: (process >> 32) as RawFd, bytes, address };
        match named.process {
            _ if found != kind => Err(Code::INVALID_VALUE),
            own if own == std::process::id() => Err(Code::INVALID_CONTEXT),
            process if !Path::new(&format!("/proc/{process}")).exists() => Err(Code::INVALID_HANDLE),
            _ => Ok(named),
        }
    }
}

impl Driver {
    pub(crate) fn name_memory(&mut self, address: u64) -> Outcome<IpcHandle> {
        let imported = self.engine.memory.containing(address).is_none_or(|(_, allocation)| allocation.imported);
        if imported {
            return Err(Code::INVALID_VALUE);
        }
        let (address, descriptor) = self.engine.export(address)?;
        let bytes = self.engine.memory.at(address).ok_or(Code::INVALID_VALUE)?.bytes;
        Ok(Named { kind: MEMORY, process: std::process::id(), descriptor, bytes, address }.handle())
    }

    /// Opens memory of another process. A handle that is open already has its address again.
    pub(crate) fn open_memory(&mut self, context: Handle, handle: IpcHandle) -> Outcome<u64> {
        let named = Named::read(handle, MEMORY)?;
        if let Some((address, (_, opened))) = self.opened.iter_mut().find(|(_, (other, _))| *other == named) {
            *opened += 1;
            return Ok(*address);
        }
        let exported = Exported::open::<Self>(named.process, named.descriptor).ok_or(Code::INVALID_VALUE)?;
        self.device(exported.device as i32)?;
        let address = self.engine.import(exported, named.bytes, context)?;
        self.opened.insert(address, (named, 1));
        Ok(address)
    }

    pub(crate) fn close_memory(&mut self, address: u64) -> Outcome {
        let (_, opened) = self.opened.get_mut(&address).ok_or(Code::INVALID_VALUE)?;
        *opened -= 1;
        if *opened == 0 {
            self.opened.remove(&address);
            self.engine.free(address)?;
        }
        Ok(())
    }

    /// Returns a new descriptor of exportable physical memory.
    pub(crate) fn export_physical(&mut self, handle: u64) -> Outcome<File> {
        if !self.exportable.contains(&handle) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(self.engine.export_physical(handle)?)
    }

    pub(crate) fn import_physical(&mut self, descriptor: RawFd) -> Outcome<u64> {
        let exported = Exported::open::<Self>(std::process::id(), descriptor).ok_or(Code::UNKNOWN)?;
        self.device(exported.device as i32)?;
        Ok(self.engine.import_physical(exported)?)
    }

    pub(crate) fn name_event(&mut self, handle: Handle) -> Outcome<IpcHandle> {
        if self.event(handle)?.flags & Event::INTERPROCESS == 0 {
            return Err(Code::INVALID_HANDLE);
        }
        let (process, address) = (std::process::id(), handle as u64);
        Ok(Named { kind: EVENT, process, descriptor: 0, bytes: 0, address }.handle())
    }

    /// Opens an event of another process. It is complete, since naming it has waited for it.
    pub(crate) fn open_event(&mut self, context: Handle, handle: IpcHandle) -> Outcome<Handle> {
        Named::read(handle, EVENT)?;
        let flags = Event::INTERPROCESS | Event::DISABLE_TIMING;
        let event = self.engine.new_handle();
        self.events.insert(event, Event { context, flags, recorded: None, time: None, captured: None });
        Ok(event)
    }
}
