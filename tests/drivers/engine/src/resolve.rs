//! Resolves addresses to bytes: what work may touch, and where it is in this process.

use crate::device_memory::FIRST_ADDRESS;
use crate::error::{Fault, Wrong};
use crate::face::Face;
use crate::session::Session;
use crate::work::Lent;

/// The device or kernel that touches memory.
#[derive(Clone, Copy)]
pub(crate) struct Toucher {
    pub(crate) device: usize,
    /// Whether a kernel touches it. Kernels are limited to what their device can reach; copies and fills are not.
    pub(crate) kernel: bool,
}

/// A contiguous piece of memory in this process.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: *mut u8,
    bytes: usize,
}

impl<F: Face> Session<F> {
    /// Resolves a range to its pieces, or says what is wrong with it.
    pub(crate) fn resolve(&self, toucher: Toucher, write: bool, address: u64, bytes: u64) -> Result<Vec<Span>, String> {
        let mut spans = Vec::new();
        let mut next = address;
        let end = address.checked_add(bytes).ok_or("a range that ends beyond all addresses")?;
        while next < end {
            // A range may continue beyond one piece only in mapped virtual memory.
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

    /// Returns the piece at an address, which ends at `end` at the latest, and whether the range may continue after it.
    fn piece(&self, toucher: Toucher, write: bool, address: u64, end: u64) -> Result<(Span, bool), String> {
        let engine = self.engine();
        let length = |start: u64, bytes: u64| ((end - address).min(start + bytes - address)) as usize;
        let offset = |start: u64| (address - start) as usize;
        if let Some((start, allocation)) = engine.memory.containing(address) {
            let is_own = toucher.device == allocation.device;
            if toucher.kernel && !is_own && !self.may_reach(toucher.device, allocation.device) {
                return Err("memory of a device to which peer access is not enabled".to_owned());
            }
            let start_byte = allocation.backing.at(offset(start));
            return Ok((Span { start: start_byte, bytes: length(start, allocation.bytes) }, false));
        }
        if let Some((start, mapping, physical)) = engine.virtual_memory.containing(address) {
            let owner_copies = !toucher.kernel && mapping.permits(physical.device, write);
            if !owner_copies && !mapping.permits(toucher.device, write) {
                return Err("mapped memory to which the device has no access".to_owned());
            }
            let start_byte = physical.backing.at(mapping.offset as usize + offset(start));
            return Ok((Span { start: start_byte, bytes: length(start, mapping.bytes) }, true));
        }
        if let Some((start, block)) = engine.host.containing(address) {
            let bytes = length(start, block.bytes());
            return Ok((Span { start: block.backing.at(offset(start)), bytes }, false));
        }
        match address < FIRST_ADDRESS {
            true => Err("host memory that is not pinned".to_owned()),
            false => Err(engine.memory.describe(address)),
        }
    }

    /// Whether a device reaches memory by itself, as its kernels do.
    pub(crate) fn reaches(&self, device: usize, ranges: &[(u64, u64)]) -> bool {
        let itself = Toucher { device, kernel: true };
        ranges.iter().all(|(address, bytes)| self.resolve(itself, false, *address, *bytes).is_ok())
    }

    /// Resolves a range for work that may touch it. Returns an illegal address fault otherwise.
    pub(crate) fn touch(
        &self,
        toucher: Toucher,
        who: &str,
        write: bool,
        address: u64,
        bytes: u64,
    ) -> Result<Vec<Span>, Fault> {
        self.resolve(toucher, write, address, bytes).map_err(|what| {
            let verb = if write { "writes" } else { "reads" };
            let text = format!("{who} on device {} {verb} {bytes} bytes at {address:#x}: {what}", toucher.device);
            Fault { wrong: Wrong::IllegalAddress, text }
        })
    }
}

impl Span {
    /// Wraps memory that the program lends.
    pub(crate) fn lent(memory: Lent, bytes: u64) -> Self {
        Self { start: memory.0, bytes: bytes as usize }
    }
}

/// Reads the bytes of a range.
pub(crate) fn read(spans: &[Span]) -> Vec<u8> {
    let mut bytes = vec![0; spans.iter().map(|span| span.bytes).sum()];
    let mut rest = bytes.as_mut_slice();
    for span in spans {
        let (now, later) = rest.split_at_mut(span.bytes);
        // SAFETY: `resolve` found the span in live memory, which the lock has kept alive since, or the program lends
        // it; `now` has its length.
        unsafe { now.as_mut_ptr().copy_from(span.start, now.len()) };
        rest = later;
    }
    bytes
}

/// Overwrites a range with the same number of bytes.
pub(crate) fn write(spans: &[Span], bytes: &[u8]) {
    let mut rest = bytes;
    for span in spans {
        let (now, later) = rest.split_at(span.bytes.min(rest.len()));
        // SAFETY: as in `read`; `now` is no longer than the span.
        unsafe { span.start.copy_from(now.as_ptr(), now.len()) };
        rest = later;
    }
}

/// Fills a range with a pattern of at least one byte.
pub(crate) fn fill(spans: &[Span], pattern: &[u8]) {
    if let [value] = pattern {
        for span in spans {
            // SAFETY: as in `read`.
            unsafe { span.start.write_bytes(*value, span.bytes) };
        }
    } else {
        let bytes = spans.iter().map(|span| span.bytes).sum();
        let repeated: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
        write(spans, &repeated);
    }
}

/// Copies between ranges of the same length. Overlapping ranges are copied as if through a temporary buffer.
pub(crate) fn copy(to: &[Span], from: &[Span]) {
    match (to, from) {
        ([to], [from]) => {
            // SAFETY: as in `read`, for both; `copy_from` permits overlaps.
            unsafe { to.start.copy_from(from.start, from.bytes.min(to.bytes)) };
        }
        _ => write(to, &read(from)),
    }
}
