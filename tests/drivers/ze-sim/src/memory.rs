//! Memory of a device, of the host, or shared by both.

use level_zero_sys::*;
use sim_engine::GRANULARITY;

use crate::files::EXPORTABLE;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::{Driver, Handle, Session};

/// The default alignments: small pages of a device, and pages of the host.
pub(crate) const SMALL_PAGE: u64 = 64 << 10;
pub(crate) const HOST_PAGE: u64 = 4 << 10;

/// The alignment under the quirk that ignores requested alignments.
const IGNORANT: u64 = 64;

/// A request for memory.
pub(crate) struct Request {
    pub(crate) context: Handle,
    pub(crate) bytes: usize,
    pub(crate) alignment: usize,
    /// A descriptor lifts the limit on one allocation.
    pub(crate) unlimited: bool,
    /// A descriptor says that it will be exported as a file.
    pub(crate) exportable: bool,
}

/// The memory that contains an address.
pub(crate) struct Found {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: ze_memory_type_t,
    pub(crate) device: Option<usize>,
    pub(crate) context: Handle,
    pub(crate) page: u64,
}

impl Driver {
    /// Checks a size and an alignment as the specification requires. `limit` is the largest allocation.
    fn check_request(&self, request: &Request, limit: u64) -> Outcome {
        if request.bytes == 0 {
            if self.settings.has(Quirk::SizeZeroAborts) {
                std::process::abort();
            }
            return Err(Refusal::UNSUPPORTED_SIZE);
        }
        if request.alignment != 0 && !request.alignment.is_power_of_two() {
            return Err(Refusal::UNSUPPORTED_ALIGNMENT);
        }
        let unlimited = request.unlimited && !self.settings.has(Quirk::NoRelaxedLimits);
        if request.bytes as u64 > limit && !unlimited {
            return Err(Refusal::UNSUPPORTED_SIZE);
        }
        Ok(())
    }

    /// Returns the alignment to use. It is met exactly, never exceeded by luck.
    fn alignment(&self, request: &Request, page: u64) -> u64 {
        match self.settings.has(Quirk::IgnoreAlignment) {
            true => IGNORANT,
            false => page.max(request.alignment as u64),
        }
    }

    /// Allocates memory of a device. Under the quirk that returns null with success, returns 0.
    pub(crate) fn allocate_device(&mut self, request: &Request, device: usize) -> Outcome<u64> {
        self.check_request(request, self.max_allocation(device))?;
        if self.settings.has(Quirk::NullSuccess) {
            return Ok(0);
        }
        let (alignment, bytes) = (self.alignment(request, SMALL_PAGE), request.bytes as u64);
        let flags = if request.exportable { EXPORTABLE } else { 0 };
        let address = match bytes.is_multiple_of(GRANULARITY) && (SMALL_PAGE..=GRANULARITY).contains(&alignment) {
            // Large pages, adjacent to each other.
            true => self.engine.allocate(device, bytes, request.context, flags),
            false => self.engine.allocate_aligned(device, bytes, alignment, request.context, flags),
        };
        Ok(address?)
    }

    /// Allocates memory of the host, or shared by the host and one or all devices.
    pub(crate) fn allocate_host(
        &mut self,
        request: &Request,
        kind: ze_memory_type_t,
        device: Option<usize>,
    ) -> Outcome<u64> {
        let devices = self.contexts.get(&request.context).map(|context| context.devices.clone());
        let limits = devices.unwrap_or_default().into_iter().map(|device| self.max_allocation(device));
        self.check_request(request, limits.max().unwrap_or(0))?;
        if self.settings.has(Quirk::NullSuccess) {
            return Ok(0);
        }
        let alignment = self.alignment(request, HOST_PAGE);
        let host = &mut self.engine.host;
        Ok(host.allocate_aligned(request.bytes, alignment as usize, request.context, device, kind.0)?)
    }

    /// Returns the memory that contains an address, or `None` if it is not the driver's.
    pub(crate) fn find_memory(&self, address: u64) -> Option<Found> {
        if let Some((start, own)) = self.engine.memory.containing(address) {
            let (bytes, device, context) = (own.bytes, Some(own.device), own.owner);
            let page = if bytes < GRANULARITY { SMALL_PAGE } else { GRANULARITY };
            return Some(Found { start, bytes, kind: ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE, device, context, page });
        }
        if let Some((start, own)) = self.engine.host.containing(address) {
            let (bytes, device, context) = (own.bytes(), own.device, own.owner);
            return Some(Found { start, bytes, kind: ze_memory_type_t(own.flags), device, context, page: HOST_PAGE });
        }
        let (start, bytes) = self.engine.virtual_memory.reserved(address)?;
        let (_, _, physical) = self.engine.virtual_memory.containing(address)?;
        let context = self.reservations.get(&start).copied().unwrap_or_default();
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;
        Some(Found { start, bytes, kind, device: Some(physical.device), context, page: GRANULARITY })
    }

    /// Records a violation if submitted work still needs memory that is about to be freed or unmapped, and drops that
    /// work.
    pub(crate) fn check_memory_unused(&mut self, address: u64, bytes: u64, about: &str) {
        let count = self.engine.forget_uses(address, bytes);
        if count > 0 {
            self.violation(format!(
                "{bytes} bytes at {address:#x} are {about} while {count} commands have yet to use them"
            ));
        }
    }
}

/// Frees memory immediately.
pub(crate) fn free(session: &mut Session, context: Handle, address: u64) -> Outcome {
    let allocation = session.engine.memory.at(address).map(|own| (own.bytes, own.owner, Some(own.device)));
    let block = session.engine.host.at(address).map(|own| (own.bytes(), own.owner, own.device));
    let Some((bytes, owner, device)) = allocation.or(block) else {
        session.violation(format!("{address:#x} is freed, but no memory starts there"));
        return Err(Refusal::INVALID_ARGUMENT);
    };
    if device.is_some_and(|device| session.is_lost(device)) {
        return Err(Refusal::DEVICE_LOST);
    }
    if owner != context {
        session.violation(format!("memory at {address:#x} is freed on a context that it was not allocated on"));
    }
    session.check_memory_unused(address, bytes, "freed");
    match allocation {
        Some(_) => session.engine.free(address)?,
        None => session.engine.host.free(address).map(drop)?,
    }
    Ok(())
}
