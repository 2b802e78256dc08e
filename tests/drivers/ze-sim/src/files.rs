//! Device memory as files, which other processes open.

use std::os::fd::RawFd;

use level_zero_sys::ze_external_memory_type_flag_t;
use sim_engine::Exported;

use crate::memory::Request;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::Driver;

/// The kinds of files, which are all the same here.
pub(crate) const KINDS: u32 = ze_external_memory_type_flag_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD.0
    | ze_external_memory_type_flag_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF.0;

/// The flag of allocations that can be exported.
pub(crate) const EXPORTABLE: u32 = 1;

impl Driver {
    /// Checks that one kind of file is asked for, which this driver has.
    pub(crate) fn check_kind(&self, kinds: u32) -> Outcome {
        let is_one = kinds.is_power_of_two() && kinds & KINDS != 0 && !self.settings.has(Quirk::NoFiles);
        if is_one { Ok(()) } else { Err(Refusal::UNSUPPORTED_ENUMERATION) }
    }

    /// Returns a descriptor of a file with the memory at this address. The driver keeps it open as long as the memory.
    pub(crate) fn export_memory(&mut self, address: u64) -> Outcome<RawFd> {
        let exportable = self.engine.memory.at(address).is_some_and(|own| own.flags & EXPORTABLE != 0);
        if !exportable {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        Ok(self.engine.export(address)?.1)
    }

    /// Opens memory of another process.
    pub(crate) fn import_memory(&mut self, request: &Request, device: usize, descriptor: RawFd) -> Outcome<u64> {
        let exported = Exported::open::<Self>(std::process::id(), descriptor);
        let exported = exported.filter(|exported| exported.device == device).ok_or(Refusal::INVALID_ARGUMENT)?;
        Ok(self.engine.import(exported, request.bytes as u64, request.context)?)
    }
}
