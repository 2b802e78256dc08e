//! From addresses to bytes: what work may touch, and where that lies in this process.

use crate::device_memory::FIRST_ADDRESS;
use crate::state::Driver;

/// Who wants to touch memory.
#[derive(Clone, Copy)]
pub(crate) struct Toucher {
    pub(crate) device: usize,
    /// A kernel, which is bound to what its device may reach; copies and fills are not.
    pub(crate) kernel: bool,
}

/// A piece of memory in this process.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: *mut u8,
    bytes: usize,
}

impl Driver {
    /// The pieces that a range is made of; or what is wrong with it.
    pub(crate) fn resolve(
        &self,
        toucher: Toucher,
        write: bool,
        address: u64,
        bytes: u64,
    ) -> Result<Vec<Span>, String> {
        let mut spans = Vec::new();
        let mut next = address;
        let end = address.checked_add(bytes).ok_or("a range that ends beyond all addresses")?;
        while next < end {
            // Only mappings of virtual memory may be followed by more of the same range.
            let (span, may_go_on) =
                self.piece(toucher, write, next, end).map_err(|what| format!("{what}, at {next:#x}"))?;
            next += span.bytes as u64;
            spans.push(span);
            if next < end && !may_go_on {
                return Err(format!("{} bytes beyond the end of its memory, at {next:#x}", end - next));
            }
        }
        Ok(spans)
    }

    /// What lies at an address and, at most up to `end`, behind it.
    fn piece(&self, toucher: Toucher, write: bool, address: u64, end: u64) -> Result<(Span, bool), String> {
        let length = |start: u64, bytes: u64| ((end - address).min(start + bytes - address)) as usize;
        let offset = |start: u64| (address - start) as usize;
        if let Some((start, allocation)) = self.memory.containing(address) {
            if toucher.kernel && !self.may_reach(toucher.device, allocation.device) {
                return Err("memory of a device to which peer access is not enabled".to_owned());
            }
            let start_byte = allocation.backing.at(offset(start));
            return Ok((Span { start: start_byte, bytes: length(start, allocation.bytes) }, false));
        }
        if let Some((start, mapping, physical)) = self.virtual_memory.containing(address) {
            let owner_copies = !toucher.kernel && mapping.permits(physical.device, write);
            if !owner_copies && !mapping.permits(toucher.device, write) {
                return Err("mapped memory to which the device has no access".to_owned());
            }
            let start_byte = physical.backing.at(offset(start));
            return Ok((Span { start: start_byte, bytes: length(start, mapping.bytes) }, true));
        }
        if let Some((start, backing)) = self.host.containing(address) {
            let bytes = length(start, backing.bytes() as u64);
            return Ok((Span { start: backing.at(offset(start)), bytes }, false));
        }
        match address < FIRST_ADDRESS {
            true => Err("host memory that is not pinned".to_owned()),
            false => Err(self.memory.describe(address)),
        }
    }

    fn may_reach(&self, device: usize, other: usize) -> bool {
        let context = self.primary_context(device).and_then(|context| self.contexts.get(&context));
        device == other || context.is_some_and(|context| context.peers.contains(&other))
    }
}

/// The bytes of a range.
pub(crate) fn read(spans: &[Span]) -> Vec<u8> {
    let mut bytes = vec![0; spans.iter().map(|span| span.bytes).sum()];
    copy_out(spans, bytes.as_mut_ptr());
    bytes
}

/// Copies a range to as many bytes at `to`.
pub(crate) fn copy_out(spans: &[Span], to: *mut u8) {
    let mut done = 0;
    for span in spans {
        // SAFETY: `resolve` found the span in live memory, and the lock held since keeps it alive; the caller
        // has room for all of them at `to`.
        unsafe { to.wrapping_add(done).copy_from(span.start, span.bytes) };
        done += span.bytes;
    }
}

/// Overwrites a range with as many bytes.
pub(crate) fn write(spans: &[Span], bytes: &[u8]) {
    let mut rest = bytes;
    for span in spans {
        let (now, later) = rest.split_at(span.bytes.min(rest.len()));
        // SAFETY: as in `copy_out`; `now` is no longer than the span.
        unsafe { span.start.copy_from(now.as_ptr(), now.len()) };
        rest = later;
    }
}

pub(crate) fn fill(spans: &[Span], value: u8) {
    for span in spans {
        // SAFETY: as in `copy_out`.
        unsafe { span.start.write_bytes(value, span.bytes) };
    }
}

/// Copies between ranges of one length; what they share is copied as if through a third place.
pub(crate) fn copy(to: &[Span], from: &[Span]) {
    match (to, from) {
        ([to], [from]) => {
            // SAFETY: as in `copy_out`, for both; `copy_from` permits overlaps.
            unsafe { to.start.copy_from(from.start, from.bytes.min(to.bytes)) };
        }
        _ => write(to, &read(from)),
    }
}
