//! Allocation, free, and uses by other streams.
//!
//! The memory of a tensor has a *context*: one word, which PyTorch keeps in the tensor's `DataPtr` and hands to its
//! deleter. It holds the allocation's key and the number of the device, so that no table is searched. Memory that
//! PyTorch requests without a `DataPtr` is known by its address.
#![allow(unsafe_code)] // exported functions

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::num::NonZeroU64;
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{Allocation, AllocationKey, DevicePtr, DriverError, DriverErrorKind, Error, Result};

use crate::boundary::{DONE, or, status};
use crate::devices::{self, Device, device, opened};
use crate::driver::{self, Driver};
use crate::share;

/// The memory of a tensor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory {
    /// Its address; 0 for no bytes.
    pub address: u64,
    /// Its context; 0 for no bytes.
    pub context: u64,
}

/// Allocates memory for a tensor on a stream.
///
/// # Safety
/// `stream` is PyTorch's stream of this device, and `memory` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_allocate(
    size: usize,
    index: c_int,
    stream: *mut c_void,
    memory: *mut Memory,
) -> c_int {
    status(|| {
        let allocated = allocate(size, index, stream)?;
        // SAFETY: The caller's promise.
        unsafe { memory.write(allocated) };
        Ok(())
    })
}

#[inline(always)]
fn allocate(size: usize, index: c_int, stream: *mut c_void) -> Result<Memory> {
    let device = device(index)?;
    let Some(size) = NonZeroU64::new(size as u64) else { return Ok(Memory { address: 0, context: 0 }) };
    let allocation = device.allocator().allocate(size, devices::stream(device, stream)?)?;
    let address = allocation.ptr().trace_address();
    let key = allocation.into_key().map_err(|allocation| without_key(device, allocation))?;
    Ok(Memory { address, context: context(index, key) })
}

#[cold]
fn without_key(device: Device, allocation: Allocation<Driver>) -> Error {
    let freed = device.allocator().free(allocation);
    let why = "the number of streams or pools is too high";
    let source = DriverError::refused(DriverErrorKind::Unsupported, "accelerator_torch_allocate", why);
    freed.err().map_or_else(|| Error::Driver { device: device.device(), source }, Error::from)
}

/// Makes a context: an odd number, which no address is.
#[inline(always)]
pub(crate) fn context(index: c_int, key: AllocationKey) -> u64 {
    (index as u64) << (AllocationKey::BITS + 1) | key.get().get() << 1 | 1
}

/// Splits a context into the device and the key. An address, which is even, is looked up.
#[inline(always)]
fn parts(context: u64) -> Option<(Device, AllocationKey)> {
    let context = if context & 1 == 1 { context } else { known(context)? };
    let key = NonZeroU64::new(context >> 1 & ((1 << AllocationKey::BITS) - 1))?;
    let device = devices::if_open((context >> (AllocationKey::BITS + 1)) as c_int)?;
    Some((device, AllocationKey::new(key)))
}

/// Frees the memory of a tensor.
///
/// # Safety
/// The context came from [`accelerator_torch_allocate`], and the memory has not been freed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_free(context: u64) {
    or((), || {
        if let Some((device, key)) = parts(context) {
            // SAFETY: The caller's promise.
            if unsafe { share::keeps(device, key) } {
                return;
            }
            // SAFETY: The caller's promise.
            unsafe { device.allocator().free_by_key(key) };
        }
    });
}

/// Notes that a stream uses the memory of a tensor, which is known by its context or its address.
///
/// # Safety
/// As for [`accelerator_torch_free`], and `stream` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_record_use(context: u64, stream: *mut c_void) -> c_int {
    status(|| match parts(context) {
        None => Ok(()),
        Some((device, key)) => {
            let stream = devices::stream(device, stream)?;
            // SAFETY: The caller's promise.
            unsafe { device.allocator().record_use_by_key(key, stream) }
        }
    })
}

/// What PyTorch's profiler is told about an allocation, in bytes.
#[repr(C)]
#[derive(Default)]
pub struct Usage {
    address: u64,
    /// The size of its block.
    block: u64,
    /// All that is allocated on its device.
    allocated: i64,
    /// All that is reserved on its device.
    reserved: i64,
    /// The number of its device.
    device: c_int,
}

/// Returns what an allocation takes, and what its device has allocated. The memory is known by its context or its
/// address; all is 0 if it is not ours. PyTorch: `reportMemoryUsageToProfiler`.
///
/// # Safety
/// As for [`accelerator_torch_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_usage(context: u64) -> Usage {
    or(Usage::default(), || {
        let Some((device, key)) = parts(context) else { return Usage::default() };
        let (allocator, device) = (device.allocator(), device.device().index as c_int);
        let all = allocator.statistics();
        let (allocated, reserved) = (all.allocated_bytes.all.current, all.reserved_bytes.all.current);
        // SAFETY: The caller's promise.
        let (ptr, block) = unsafe { allocator.block_by_key(key) };
        Usage { address: ptr.trace_address(), block, allocated, reserved, device }
    })
}

type Contexts = Mutex<Option<HashMap<u64, u64>>>;

/// The contexts of memory that is known by its address, in parts with a lock each.
static RAW: [Contexts; 64] = [const { Mutex::new(None) }; 64];

fn raw(address: u64) -> &'static Contexts {
    /// An odd number whose multiples have well-mixed high bits.
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    &RAW[((address >> 9).wrapping_mul(MIX) >> 58) as usize]
}

/// Allocates memory that is known by its address.
///
/// # Safety
/// `stream` is PyTorch's stream of this device, and `address` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_raw_allocate(
    size: usize,
    index: c_int,
    stream: *mut c_void,
    address: *mut u64,
) -> c_int {
    status(|| {
        let memory = allocate(size, index, stream)?;
        if memory.context != 0 {
            known_by_address(memory);
        }
        // SAFETY: The caller's promise.
        unsafe { address.write(memory.address) };
        Ok(())
    })
}

/// Makes memory known by its address. Returns the address, which is also a context.
pub(crate) fn known_by_address(memory: Memory) -> u64 {
    lock(raw(memory.address)).get_or_insert_default().insert(memory.address, memory.context);
    memory.address
}

/// Makes the memory of a tensor known by its address, too, so that the tensor can do without its context. PyTorch
/// requires of memory that it copies on write that context and address are the same.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_keep_address(memory: Memory) {
    or((), || _ = known_by_address(memory));
}

/// Returns the allocation that starts at this address.
pub(crate) fn allocation_at(address: u64) -> Option<(Device, AllocationKey)> {
    parts(known(address)?)
}

/// Returns the context of memory by its address.
#[cold]
fn known(address: u64) -> Option<u64> {
    let kept = lock(raw(address)).as_ref().and_then(|contexts| contexts.get(&address).copied());
    kept.or_else(|| context_at(address))
}

/// Returns the context of memory by its address, and forgets the address.
fn taken(address: u64) -> Option<u64> {
    forget(address).or_else(|| context_at(address))
}

/// Part of the addresses that are kept, locked.
#[cfg(feature = "host")]
pub(crate) type Locked = std::sync::MutexGuard<'static, Option<HashMap<u64, u64>>>;

/// Locks all addresses that are kept.
#[cfg(feature = "host")]
pub(crate) fn lock_addresses() -> Vec<Locked> {
    RAW.iter().map(lock).collect()
}

/// Forgets an address. Returns the context that was kept for it.
pub(crate) fn forget(address: u64) -> Option<u64> {
    lock(raw(address)).as_mut().and_then(|contexts| contexts.remove(&address))
}

/// Returns the context of the allocation that starts at this address. Looks at every block.
fn context_at(address: u64) -> Option<u64> {
    opened().find_map(|device| Some(context(device.device().index as c_int, device.allocator().key_at(address)?)))
}

/// The memory is freed.
const FREED: c_int = 0;
/// The memory is not ours.
const FOREIGN: c_int = 1;
/// The memory may be ours, and is not freed.
const LOST: c_int = 2;

/// Frees memory by its address: that of [`accelerator_torch_raw_allocate`], or that of a tensor whose deleter PyTorch
/// has taken away, as its graph trees do. Returns 0 if it is freed, 1 if it is not ours, and 2 after a panic.
///
/// # Safety
/// The memory has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_raw_free(address: u64) -> c_int {
    or(LOST, || match taken(address) {
        None => FOREIGN,
        Some(context) => {
            // SAFETY: The caller's promise.
            unsafe { accelerator_torch_free(context) };
            FREED
        }
    })
}

/// As [`accelerator_torch_raw_free`], for memory that a stream uses. Waits for a stream whose use cannot be recorded.
///
/// # Safety
/// As for [`accelerator_torch_raw_free`], and the stream is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_raw_free_after(address: u64, stream: *mut c_void) -> c_int {
    // SAFETY: The caller's promise. A stream of another device is refused.
    let is_recorded = unsafe { accelerator_torch_record_use(address, stream) } == DONE;
    let has_waited = || allocation_at(address).is_none_or(|(device, _)| driver::wait(device, stream).is_ok());
    if !is_recorded && !or(false, has_waited) {
        return LOST; // the stream may still use the memory, which stays
    }
    // SAFETY: The caller's promise.
    unsafe { accelerator_torch_raw_free(address) }
}

/// Returns whether an allocation of ours starts at this address.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_owns(address: u64) -> bool {
    or(false, || known(address).is_some())
}

/// Part of the address space.
#[repr(C)]
#[derive(Default)]
pub struct Range {
    pub(crate) start: u64,
    /// In bytes.
    pub(crate) size: u64,
}

/// Returns the segment that contains an address; no bytes if there is none. PyTorch: `getBaseAllocation`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_segment_at(address: u64) -> Range {
    or(Range::default(), || {
        let segment = opened().find_map(|device| device.allocator().segment_at(address));
        segment.map_or_else(Range::default, |(ptr, size)| Range { start: ptr.trace_address(), size })
    })
}
