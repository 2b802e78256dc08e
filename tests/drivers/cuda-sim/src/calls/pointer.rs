//! Attributes of addresses.

use crate::code::{Code, Outcome};
use crate::gate::exports;
use crate::state::{Driver, Handle, Session};

exports! {
    /// Returns an attribute of an address in device memory, pinned memory or mapped virtual memory.
    fn cuPointerGetAttribute(value: *mut u8, attribute: i32, address: u64) [Context] => raw attribute;
}

/// The memory at an address.
struct Found {
    start: u64,
    bytes: u64,
    /// `None` for host memory.
    device: Option<usize>,
    context: Handle,
}

fn find(driver: &Driver, address: u64) -> Option<Found> {
    if let Some((start, allocation)) = driver.engine.memory.containing(address) {
        let (bytes, device, context) = (allocation.bytes, Some(allocation.device), allocation.owner);
        return Some(Found { start, bytes, device, context });
    }
    if let Some((start, mapping, physical)) = driver.engine.virtual_memory.containing(address) {
        let context = driver.primary_context(physical.device).unwrap_or(0);
        return Some(Found { start, bytes: mapping.bytes, device: Some(physical.device), context });
    }
    let (start, block) = driver.engine.host.containing(address)?;
    let context = driver.current().unwrap_or(0);
    Some(Found { start, bytes: block.bytes(), device: None, context })
}

/// # Safety
/// * `value` is null, or has room for the attribute.
unsafe fn attribute(driver: &mut Session, value: *mut u8, attribute: i32, address: u64) -> Outcome {
    let found = find(driver, address).filter(|_| !value.is_null()).ok_or(Code::INVALID_VALUE)?;
    let number = |number: u64| number.to_ne_bytes().to_vec();
    let word = |word: u32| word.to_ne_bytes().to_vec();
    let bytes = match attribute {
        1 => number(found.context as u64),                     // CONTEXT
        2 => word(if found.device.is_some() { 2 } else { 1 }), // MEMORY_TYPE
        3 => number(address),                                  // DEVICE_POINTER
        4 if found.device.is_none() => number(address),        // HOST_POINTER
        6 | 8 => word(0),                                      // SYNC_MEMOPS, IS_MANAGED
        7 | 11 => number(found.start),                         // BUFFER_ID, RANGE_START_ADDR
        9 => word(found.device.unwrap_or(0) as u32),           // DEVICE_ORDINAL
        12 => number(found.bytes),                             // RANGE_SIZE
        13 => word(1),                                         // MAPPED
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller promises room for the attribute, which has this size.
    unsafe { value.copy_from(bytes.as_ptr(), bytes.len()) };
    Ok(())
}
