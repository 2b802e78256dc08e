//! Copies and fills.

use sim_engine::{FIRST_ADDRESS, Lent, Source, Target, Work};

use crate::code::{Code, Outcome};
use crate::gate::exports;
use crate::state::{Driver, Handle, Session};

exports! {
    /// Copies between any two places. Their addresses show which kinds of memory they are.
    fn cuMemcpyAsync(target: u64, source: u64, bytes: usize, stream: Handle) [Context] => raw copy_async;
    /// Copies from host to device. Pageable memory is read during the call, pinned memory in stream order.
    fn cuMemcpyHtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: Handle)
        [Context] => raw host_to_device_async;
    /// Copies from device to host. If the target is pageable memory, the call waits for the copy.
    fn cuMemcpyDtoHAsync_v2(target: u64, source: u64, bytes: usize, stream: Handle)
        [Context] => raw device_to_host_async;
    /// Copies from device to device.
    fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: Handle)
        [Context] => raw device_to_device_async;
    /// Copies from memory of one context to memory of another. Both must belong to the contexts that the call names.
    fn cuMemcpyPeerAsync(
        target: u64, target_context: Handle, source: u64, source_context: Handle,
        bytes: usize, stream: Handle,
    ) [Context] => raw peer_async;
    /// Copies from host to device in the legacy default stream, and waits.
    fn cuMemcpyHtoD_v2(target: u64, source: u64, bytes: usize) [NoCapture] => raw host_to_device;
    /// Copies from device to host in the legacy default stream, and waits.
    fn cuMemcpyDtoH_v2(target: u64, source: u64, bytes: usize) [NoCapture] => raw device_to_host;
    /// Copies from device to device in the legacy default stream, without waiting.
    fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: usize) [NoCapture] => raw device_to_device;
    /// Fills memory with a byte.
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Handle) [Context] => safe fill_async;
    /// Fills memory in the legacy default stream. Waits only if it is pinned host memory.
    fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize) [NoCapture] => safe fill;
}

/// The legacy default stream.
const LEGACY: Handle = 0;

fn is_device(address: u64) -> bool {
    address >= FIRST_ADDRESS
}

fn is_pageable(driver: &Driver, address: u64) -> bool {
    !is_device(address) && driver.engine.host.containing(address).is_none()
}

/// # Safety
/// * Addresses of pageable host memory are valid for `bytes` bytes until the call returns.
unsafe fn copy_async(driver: &mut Session, target: u64, source: u64, bytes: usize, stream: Handle) -> Outcome {
    let stream = driver.stream(stream)?;
    let context = driver.state_of(stream)?.context;
    if bytes == 0 {
        return Ok(());
    }
    if target == 0 || source == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let lends = is_pageable(driver, target);
    let from = match is_pageable(driver, source) {
        // The graph reads it at each launch.
        true if driver.is_captured(stream) => Source::Pageable(Lent(source as *mut u8)),
        true => {
            // SAFETY: the caller promises that many bytes there.
            let taken = unsafe { std::slice::from_raw_parts(source as *const u8, bytes) };
            Source::Snapshot(taken.to_vec())
        }
        false => Source::Memory(source),
    };
    let to = if lends { Target::Pageable(Lent(target as *mut u8)) } else { Target::Memory(target) };
    let copy = Work::Copy { target: to, source: from, bytes: bytes as u64 };
    let submitted = driver.submit(stream, copy)?;
    match submitted.filter(|_| lends) {
        Some(position) => {
            driver.wait(&[position]);
            driver.context(context).map(drop)
        }
        None => Ok(()),
    }
}

/// # Safety
/// * As [`copy_async`].
unsafe fn host_to_device_async(
    driver: &mut Session,
    target: u64,
    source: u64,
    bytes: usize,
    stream: Handle,
) -> Outcome {
    if is_device(source) || is_pageable(driver, target) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises the same.
    unsafe { copy_async(driver, target, source, bytes, stream) }
}

/// # Safety
/// * As [`copy_async`].
unsafe fn device_to_host_async(
    driver: &mut Session,
    target: u64,
    source: u64,
    bytes: usize,
    stream: Handle,
) -> Outcome {
    if is_device(target) || is_pageable(driver, source) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises the same.
    unsafe { copy_async(driver, target, source, bytes, stream) }
}

/// # Safety
/// * As [`copy_async`].
unsafe fn device_to_device_async(
    driver: &mut Session,
    target: u64,
    source: u64,
    bytes: usize,
    stream: Handle,
) -> Outcome {
    if is_pageable(driver, target) || is_pageable(driver, source) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises the same.
    unsafe { copy_async(driver, target, source, bytes, stream) }
}

/// Checks that device memory belongs to the context. Memory that is not live is left to the work, which fails in its
/// turn.
fn check_owner(driver: &mut Driver, address: u64, context: Handle) -> Outcome {
    let device = driver.context(context)?.device;
    let allocated = driver.engine.memory.containing(address).map(|(_, allocation)| allocation.device);
    let mapped = driver.engine.virtual_memory.containing(address).map(|(_, _, physical)| physical.device);
    let is_own = allocated.or(mapped).is_none_or(|owner| owner == device);
    if is_own && is_device(address) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// # Safety
/// * As [`copy_async`].
unsafe fn peer_async(
    driver: &mut Session,
    target: u64,
    target_context: Handle,
    source: u64,
    source_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Outcome {
    check_owner(driver, target, target_context)?;
    check_owner(driver, source, source_context)?;
    // SAFETY: the caller promises the same.
    unsafe { device_to_device_async(driver, target, source, bytes, stream) }
}

/// Waits for the legacy default stream.
fn finish(driver: &mut Session) -> Outcome {
    let context = driver.current()?;
    let stream = driver.stream(LEGACY)?;
    let end = driver.engine.end(stream);
    driver.wait(&[end]);
    driver.context(context).map(drop)
}

/// # Safety
/// * As [`copy_async`].
unsafe fn host_to_device(driver: &mut Session, target: u64, source: u64, bytes: usize) -> Outcome {
    // SAFETY: the caller promises the same.
    unsafe { host_to_device_async(driver, target, source, bytes, LEGACY) }?;
    finish(driver)
}

/// # Safety
/// * As [`copy_async`].
unsafe fn device_to_host(driver: &mut Session, target: u64, source: u64, bytes: usize) -> Outcome {
    // SAFETY: the caller promises the same.
    unsafe { device_to_host_async(driver, target, source, bytes, LEGACY) }?;
    finish(driver)
}

/// # Safety
/// * As [`copy_async`].
unsafe fn device_to_device(driver: &mut Session, target: u64, source: u64, bytes: usize) -> Outcome {
    // SAFETY: the caller promises the same.
    unsafe { device_to_device_async(driver, target, source, bytes, LEGACY) }
}

fn fill_async(driver: &mut Session, address: u64, value: u8, bytes: usize, stream: Handle) -> Outcome {
    let stream = driver.stream(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    if is_pageable(driver, address) {
        return Err(Code::INVALID_VALUE);
    }
    driver.submit(stream, Work::fill(address, value, bytes as u64)).map(drop)
}

fn fill(driver: &mut Session, address: u64, value: u8, bytes: usize) -> Outcome {
    fill_async(driver, address, value, bytes, LEGACY)?;
    if is_device(address) { Ok(()) } else { finish(driver) }
}
