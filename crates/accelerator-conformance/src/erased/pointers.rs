//! Pointers into the memory of any backend.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use accelerator_core::{DevicePtr, DriverError, DriverResult, Place};

use super::handles::invalid;

/// A pointer into the memory of any backend: an offset from the start of an allocation or of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnyPtr {
    /// The number of the allocation, unique across all devices.
    allocation: u64,
    offset: u64,
    /// The trace address of the start.
    start: u64,
}

impl DevicePtr for AnyPtr {
    fn offset(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    fn trace_address(self) -> u64 {
        self.start + self.offset
    }
}

/// The start of each allocation and reservation of one device, by number.
pub(super) struct Pointers<P>(Mutex<HashMap<u64, P>>);

impl<P: DevicePtr> Pointers<P> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Registers a pointer that the backend returned.
    pub(super) fn enter(&self, start: P) -> AnyPtr {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let allocation = NEXT.fetch_add(1, Ordering::Relaxed);
        self.starts().insert(allocation, start);
        AnyPtr { allocation, offset: 0, start: start.trace_address() }
    }

    /// Removes a pointer that is about to be freed. Returns `None` if it is not the start of anything live.
    pub(super) fn remove(&self, ptr: AnyPtr) -> Option<P> {
        if ptr.offset > 0 {
            return None;
        }
        self.starts().remove(&ptr.allocation)
    }

    /// Returns the backend's own pointer.
    ///
    /// An [`AnyPtr`] counts offsets itself. A backend whose own offsets do not show in its trace addresses is therefore
    /// detected here.
    pub(super) fn native(&self, ptr: AnyPtr) -> DriverResult<P> {
        let start = self.starts().get(&ptr.allocation).copied();
        let start = start.ok_or(invalid("pointer", "the address is in no allocation of this device"))?;
        let native = start.offset(ptr.offset);
        match native.trace_address() == ptr.trace_address() {
            true => Ok(native),
            false => Err(invalid("pointer", "the trace address does not match the offset")),
        }
    }

    pub(super) fn place(&self, place: Place<AnyPtr>) -> DriverResult<Place<P>> {
        match place {
            Place::Device(ptr) => Ok(Place::Device(self.native(ptr)?)),
            Place::Host(ptr) => Ok(Place::Host(ptr)),
            _ => Err(DriverError::unknown_place("copy")),
        }
    }

    fn starts(&self) -> MutexGuard<'_, HashMap<u64, P>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses all offsets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Stuck(u64);

    impl DevicePtr for Stuck {
        fn offset(self, _: u64) -> Self {
            self
        }

        fn trace_address(self) -> u64 {
            self.0
        }
    }

    #[test]
    fn only_locations_of_the_device_are_known_until_they_are_given_back() {
        let [here, there] = [(); 2].map(|()| Pointers::new());
        let ptr = here.enter(Stuck(7));
        assert_eq!((ptr.trace_address(), here.native(ptr).unwrap()), (7, Stuck(7)));
        assert!(there.native(ptr).is_err(), "of another device");
        assert_eq!((here.remove(ptr.offset(1)), there.remove(ptr)), (None, None));
        assert_eq!(here.remove(ptr), Some(Stuck(7)));
        assert!(here.native(ptr).is_err() && here.remove(ptr).is_none());
    }

    #[test]
    fn a_backend_that_loses_distances_is_found() {
        let pointers = Pointers::new();
        let refused = pointers.native(pointers.enter(Stuck(7)).offset(512)).unwrap_err();
        assert!(refused.name.contains("trace address"), "{refused}");
    }
}
