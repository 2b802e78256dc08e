use std::collections::BTreeMap;
use std::fmt;

use super::{Bytes, Device, DriverError, MemPoolId, MemPoolInfo};

/// Why a request for device memory failed, and what may help. PyTorch: the text of `torch.OutOfMemoryError`.
#[derive(Clone, PartialEq)]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// The number of bytes that were requested.
    pub requested: u64,
    /// The size of the segment that the driver was asked for, in bytes; 0 if the request was too large to try.
    pub segment: u64,
    /// What refused the request.
    pub cause: OutOfMemoryCause,
    /// The total memory of the device in bytes, if the driver reported it.
    pub total: Option<u64>,
    /// The free memory of the device in bytes, if the driver reported it.
    pub free: Option<u64>,
    /// The number of bytes that the memory fraction allows; `None` if no fraction is set.
    pub allowed: Option<u64>,
    /// Bytes in live allocations, except paused ones.
    pub allocated: u64,
    /// Bytes of `allocated` that belong to private pools.
    pub allocated_in_pools: u64,
    /// Bytes that are freed but still in use by streams, except paused ones.
    pub pending: u64,
    /// Bytes of `allocated` and `pending` that were not requested, but added by rounding or left over in a block.
    pub rounding: u64,
    /// Bytes held from the driver. Paused ones are not held.
    pub reserved: u64,
    /// Bytes of `reserved` that are free in segments, or under the policy `compact` in chunks, that are partly in use.
    /// They cannot go back to the driver. Those of expandable segments are not included.
    pub in_pieces: u64,
    /// Bytes of `reserved` that are free in private pools.
    pub free_in_pools: u64,
    /// Bytes of paused pools, which are back with the driver.
    pub paused: u64,
    /// The private pools with memory.
    pub pools: BTreeMap<MemPoolId, MemPoolInfo>,
    /// The size of the largest free block in the cache of the request's stream, in bytes.
    pub largest_cached: u64,
    /// What may help, without settings that are already in force.
    pub advice: Vec<&'static str>,
}

/// What refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutOfMemoryCause {
    /// The driver had no memory left.
    Device,
    /// There was not enough address space for an expandable segment, although the device may have memory.
    AddressSpace,
    /// The memory fraction does not allow the request, although the device may have memory.
    Limit,
    /// `throw_on_cudamalloc_oom` is set, and the reserved memory would exceed the share of the device that the settings
    /// allow.
    Rejected,
    /// The request exceeds the largest allocation that the driver supports, however much memory is free.
    AllocationTooLarge {
        /// The size of the largest driver allocation in bytes.
        largest: u64,
        /// The error of the driver.
        driver: DriverError,
    },
    /// The request is an exbibyte or more, which no device can hold.
    TooLarge,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, requested, cause, allocated, reserved, pending, rounding, in_pieces, .. } = self;
        write!(f, "{device} out of memory: tried to allocate {}", Bytes(*requested))?;
        if self.segment > *requested {
            write!(f, " (a segment of {})", Bytes(self.segment))?;
        }
        match cause {
            OutOfMemoryCause::TooLarge => return f.write_str(", more than any device can hold."),
            OutOfMemoryCause::Device => f.write_str(". The device has no room for it.")?,
            OutOfMemoryCause::AddressSpace => f.write_str(". There is not enough address space for it.")?,
            OutOfMemoryCause::Limit => f.write_str(". The memory fraction does not allow it.")?,
            OutOfMemoryCause::Rejected => f.write_str(
                ". It was rejected before the driver was called: throw_on_cudamalloc_oom is set, and the reserved \
                 memory would exceed per_process_memory_fraction of the device.",
            )?,
            OutOfMemoryCause::AllocationTooLarge { largest, driver } => {
                let segment = self.segment;
                return write!(
                    f,
                    ". That takes an allocation of {segment} bytes, and the driver of this device allows at most \
                     {largest}: {driver}."
                );
            }
        }
        if let (Some(total), Some(free)) = (self.total, self.free) {
            write!(f, " The device has {} in total, of which {} is free.", Bytes(total), Bytes(free))?;
        }
        if let Some(allowed) = self.allowed {
            write!(f, " The memory fraction allows {}.", Bytes(allowed))?;
        }
        let in_pools = |f: &mut fmt::Formatter<'_>, bytes| match bytes {
            0 => Ok(()),
            bytes => write!(f, ", of which {} in private pools", Bytes(bytes)),
        };
        write!(f, " {} is allocated", Bytes(*allocated))?;
        in_pools(f, self.allocated_in_pools)?;
        if *pending > 0 {
            write!(f, ", {} is freed but still in use by streams", Bytes(*pending))?;
        }
        if *rounding > 0 {
            write!(f, ", {} of this was added by rounding", Bytes(*rounding))?;
        }
        let unallocated = reserved.saturating_sub(allocated + pending);
        write!(f, ", and {} is reserved but unallocated", Bytes(unallocated))?;
        in_pools(f, self.free_in_pools)?;
        if unallocated > 0 {
            write!(f, "; the largest free block that this stream could use is {}", Bytes(self.largest_cached))?;
        }
        if *in_pieces > 0 {
            write!(f, "; {} is in pieces between blocks in use", Bytes(*in_pieces))?;
        }
        f.write_str(".")?;
        by_pool(f, "Private pools hold", &self.pools, |pool| pool.reserved_bytes.saturating_sub(pool.paused_bytes))?;
        by_pool(f, "Paused, and so not held, are", &self.pools, |pool| pool.paused_bytes)?;
        self.advice.iter().try_for_each(|advice| write!(f, " {advice}"))
    }
}

/// Writes a sentence with the largest amounts of pools.
fn by_pool(
    f: &mut fmt::Formatter<'_>,
    start: &str,
    pools: &BTreeMap<MemPoolId, MemPoolInfo>,
    amount: impl Fn(&MemPoolInfo) -> u64,
) -> fmt::Result {
    const SHOWN: usize = 5;
    let mut amounts: Vec<_> = pools.iter().map(|(id, pool)| (amount(pool), id, pool)).collect();
    amounts.retain(|(bytes, ..)| *bytes > 0);
    amounts.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes)); // stable: then by number
    let others = amounts.split_off(SHOWN.min(amounts.len()));
    let pool = |(bytes, id, pool): &(u64, &MemPoolId, &MemPoolInfo)| {
        format!("{} in {}", Bytes(*bytes), id.with_name(pool.name.as_deref()))
    };
    let mut parts: Vec<_> = amounts.iter().map(pool).collect();
    if !others.is_empty() {
        let bytes = others.iter().map(|(bytes, ..)| bytes).sum();
        parts.push(format!("{} in {} others", Bytes(bytes), others.len()));
    }
    match parts.is_empty() {
        true => Ok(()),
        false => write!(f, " {start} {}.", parts.join(", ")),
    }
}

impl std::error::Error for OutOfMemory {}

/// Why a request for pinned host memory failed, and what may help.
#[derive(Clone, PartialEq)]
pub struct HostOutOfMemory {
    /// The device that the memory was to be pinned for.
    pub device: Device,
    /// The number of bytes that were requested.
    pub requested: u64,
    /// The size of the block that the driver was asked for, in bytes: rounded up to a power of two unless the settings
    /// say otherwise. `None` if it exceeds the address space.
    pub block: Option<u64>,
    /// The driver's error; `None` if the driver was not called.
    pub driver: Option<DriverError>,
    /// Bytes of blocks in use by the program or by streams.
    pub active: u64,
    /// Bytes of blocks that were cached before the cache was released for this request.
    pub cached: u64,
    /// What may help.
    pub advice: Vec<&'static str>,
}

impl fmt::Display for HostOutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, requested, block, driver, active, cached, advice } = self;
        write!(f, "{device}: out of pinned host memory: tried to allocate {}", Bytes(*requested))?;
        let Some(block) = block else {
            return f.write_str(", more than the address space can hold.");
        };
        if block > requested {
            write!(f, " (rounded up to {})", Bytes(*block))?;
        }
        if let Some(driver) = driver {
            write!(f, ". {driver}")?;
        }
        write!(f, ". {} is in use by buffers of this device", Bytes(*active))?;
        if *cached > 0 {
            write!(f, ", and {} was cached and has been released", Bytes(*cached))?;
        }
        f.write_str(".")?;
        advice.iter().try_for_each(|advice| write!(f, " {advice}"))
    }
}

impl std::error::Error for HostOutOfMemory {}

debug_as_display!(OutOfMemory, HostOutOfMemory);
