//! Devices that are counted, opened and described wrongly.

use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_core::{DeviceProperties, DriverError, DriverErrorKind, DriverResult, GIB, MIB, Unavailable};

use super::of_kind;
use crate::fault::{Fault, has, planted};

/// Returns the number of devices that `probe` returns.
pub(super) fn counted(count: u32) -> Result<u32, Unavailable> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    Ok(match planted() {
        Some(Fault::ProbeOneTooMany) => count + 1,
        Some(Fault::ProbeChanges) => count + CALLS.fetch_add(1, Ordering::Relaxed),
        _ => count,
    })
}

/// Opens the device with this number.
pub(super) fn opened<B>(ordinal: u32, open: fn(u32) -> DriverResult<B>) -> DriverResult<B> {
    match planted() {
        Some(Fault::OpenFails) => Err(DriverError::refused(DriverErrorKind::Other, "open", "it is on fire")),
        Some(Fault::OpenAcceptsAnyNumber) => open(0),
        Some(Fault::OpenRefusesAsOther) => open(ordinal).map_err(|error| of_kind(DriverErrorKind::Other, error)),
        _ => open(ordinal),
    }
}

/// The properties of a device as its driver states them: at the first, third and fifth call, and at the others.
pub(super) struct Properties {
    stated: [DeviceProperties; 2],
    calls: AtomicU32,
}

impl Properties {
    pub(super) fn of(inner: &DeviceProperties) -> Self {
        let mut stated = inner.clone();
        match planted() {
            Some(Fault::AlignmentTooLarge) => stated.alignment = GIB,
            Some(Fault::AlignmentOdd) => stated.alignment = 384,
            Some(Fault::PrioritiesReversed) => stated.stream_priorities = (-1, 0),
            Some(Fault::TotalMemoryZero) => stated.total_memory = 0,
            Some(Fault::NamelessDevice) => stated.name.clear(),
            Some(Fault::TooLargeAsOutOfMemory | Fault::LargestAllocationNotKept) => {
                stated.largest_allocation = stated.largest_allocation.min(256 * MIB);
            }
            _ => {}
        }
        let mut other = stated.clone();
        other.total_memory += u64::from(has(Fault::PropertiesChange));
        Self { stated: [stated, other], calls: AtomicU32::new(0) }
    }

    pub(super) fn largest_allocation(&self) -> u64 {
        self.stated[0].largest_allocation
    }

    pub(super) fn stated(&self) -> &DeviceProperties {
        &self.stated[self.calls.fetch_add(1, Ordering::Relaxed) as usize % 2]
    }
}
