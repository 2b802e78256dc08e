use std::fmt;

use super::{Bytes, Device, DriverError};

/// Why a request could not be served, and what could be done. PyTorch: the text of `torch.OutOfMemoryError`.
#[derive(Clone, PartialEq)]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes of the segment that the driver was to give; 0 where the request was too large to try.
    pub segment: u64,
    /// What refused it.
    pub cause: OutOfMemoryCause,
    /// Bytes of the device, where it could be asked.
    pub total: Option<u64>,
    /// Bytes that the device has free, where it could be asked.
    pub free: Option<u64>,
    /// Bytes that the memory fraction allows; `None`: no fraction is set.
    pub allowed: Option<u64>,
    /// Bytes in live allocations.
    pub allocated: u64,
    /// Bytes freed, but still in use by streams.
    pub pending: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// Bytes of the largest free block that the request's stream had in its cache.
    pub largest_cached: u64,
    /// What may help, settings that are in force already left out.
    pub advice: Vec<&'static str>,
}

/// What refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutOfMemoryCause {
    /// The driver had no memory left.
    Device,
    /// There is no address space left for an expandable segment, though the device may have memory.
    AddressSpace,
    /// The memory fraction does not allow it, though the device may have memory.
    Limit,
    /// `throw_on_cudamalloc_oom` is set, and the request would bring what is reserved over the share of the device that
    /// the settings allow.
    Rejected,
    /// The driver does not give as much in one allocation, however much is free.
    AllocationTooLarge {
        /// Bytes of the largest driver allocation.
        largest: u64,
        /// What the driver said.
        driver: DriverError,
    },
    /// No device can hold it: an exbibyte or more.
    TooLarge,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, requested, cause, allocated, reserved, pending, largest_cached, .. } = self;
        write!(f, "{device} out of memory: tried to allocate {}", Bytes(*requested))?;
        if self.segment > *requested {
            write!(f, " (a segment of {})", Bytes(self.segment))?;
        }
        match cause {
            OutOfMemoryCause::TooLarge => return f.write_str(", more than any device can hold."),
            OutOfMemoryCause::Device => f.write_str(". The device has no room for it.")?,
            OutOfMemoryCause::AddressSpace => f.write_str(". There is no address space for it.")?,
            OutOfMemoryCause::Limit => f.write_str(". The memory fraction does not allow it.")?,
            OutOfMemoryCause::Rejected => f.write_str(
                ". It was rejected ahead of the driver call, since throw_on_cudamalloc_oom is set and it would bring \
                 what is reserved over per_process_memory_fraction of the device.",
            )?,
            OutOfMemoryCause::AllocationTooLarge { largest, driver } => {
                let segment = self.segment;
                return write!(
                    f,
                    ". That is {segment} bytes at once, and this device gives at most {largest}: {driver}."
                );
            }
        }
        if let (Some(total), Some(free)) = (self.total, self.free) {
            write!(f, " The device has {} in all, of which {} is free.", Bytes(total), Bytes(free))?;
        }
        if let Some(allowed) = self.allowed {
            write!(f, " The memory fraction allows {}.", Bytes(allowed))?;
        }
        write!(f, " {} is allocated", Bytes(*allocated))?;
        if *pending > 0 {
            write!(f, ", {} is freed but still in use by streams", Bytes(*pending))?;
        }
        let unallocated = reserved.saturating_sub(allocated + pending);
        write!(f, ", and {} is reserved but unallocated", Bytes(unallocated))?;
        if unallocated > 0 {
            write!(f, "; the largest free block that this stream could use is {}", Bytes(*largest_cached))?;
        }
        f.write_str(".")?;
        self.advice.iter().try_for_each(|advice| write!(f, " {advice}"))
    }
}

impl std::error::Error for OutOfMemory {}

/// Why a request for pinned host memory could not be served, and what could be done.
#[derive(Clone, PartialEq)]
pub struct HostOutOfMemory {
    /// The device for which it was to be pinned.
    pub device: Device,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes of the block that the driver was to give: rounded up to a power of two, unless the settings say otherwise.
    /// `None`: there are not as many addresses.
    pub block: Option<u64>,
    /// What the driver said; `None`: it was not asked.
    pub driver: Option<DriverError>,
    /// Bytes of the blocks that are in use, by the program or by streams.
    pub active: u64,
    /// Bytes of the blocks that were cached, before the cache was released for this request.
    pub cached: u64,
    /// What may help.
    pub advice: Vec<&'static str>,
}

impl fmt::Display for HostOutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, requested, block, driver, active, cached, advice } = self;
        write!(f, "{device}: out of pinned host memory: tried to allocate {}", Bytes(*requested))?;
        let Some(block) = block else {
            return f.write_str(", more than there are addresses.");
        };
        if block > requested {
            write!(f, " (rounded up to {})", Bytes(*block))?;
        }
        if let Some(driver) = driver {
            write!(f, ". {driver}")?;
        }
        write!(f, ". {} is in use by buffers of this device", Bytes(*active))?;
        if *cached > 0 {
            write!(f, ", and {} was cached and has been given back", Bytes(*cached))?;
        }
        f.write_str(".")?;
        advice.iter().try_for_each(|advice| write!(f, " {advice}"))
    }
}

impl std::error::Error for HostOutOfMemory {}

crate::debug_as_display!(OutOfMemory, HostOutOfMemory);
