//! A backend without devices. It gives the enums a variant in a build without backends.
#![allow(unsafe_code)] // the backend trait is unsafe to implement

use std::num::NonZeroU64;

use accelerator_core::{
    Backend, DeviceKind, DeviceProperties, DevicePtr, DriverResult, EventFlags, MemoryInfo, Place, StreamKind,
    Unavailable,
};
use accelerator_core::{DriverError, DriverErrorKind};

/// A type without values, so that there are no devices, streams, events or pointers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoBackend {}

impl DevicePtr for NoBackend {
    fn offset(self, _bytes: u64) -> Self {
        self
    }

    fn trace_address(self) -> u64 {
        match self {}
    }
}

// SAFETY: The type has no value to call a method on, and `open` never returns one.
unsafe impl Backend for NoBackend {
    const KIND: DeviceKind = DeviceKind::new("none");
    type Ptr = Self;
    type Stream = Self;
    type Event = Self;

    fn probe() -> Result<u32, Unavailable> {
        Err(Unavailable::new("this build has no backend"))
    }

    fn open(_ordinal: u32) -> DriverResult<Self> {
        Err(DriverError::refused(DriverErrorKind::InvalidArgument, "open", "this build has no backend"))
    }

    fn properties(&self) -> &DeviceProperties {
        match *self {}
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        match *self {}
    }

    fn stream(&self, _kind: StreamKind) -> DriverResult<Self> {
        match *self {}
    }

    fn synchronize(&self, _stream: &Self) -> DriverResult<()> {
        match *self {}
    }

    fn is_idle(&self, _stream: &Self) -> DriverResult<bool> {
        match *self {}
    }

    fn event(&self, _flags: EventFlags) -> DriverResult<Self> {
        match *self {}
    }

    fn record(&self, _event: &Self, _stream: &Self) -> DriverResult<()> {
        match *self {}
    }

    fn wait(&self, _stream: &Self, _event: &Self) -> DriverResult<()> {
        match *self {}
    }

    fn is_complete(&self, _event: &Self) -> DriverResult<bool> {
        match *self {}
    }

    fn elapsed_ns(&self, _start: &Self, _end: &Self) -> DriverResult<i64> {
        match *self {}
    }

    fn alloc(&self, _len: NonZeroU64) -> DriverResult<Self> {
        match *self {}
    }

    unsafe fn dealloc(&self, _ptr: Self, _len: NonZeroU64) {
        match *self {}
    }

    unsafe fn copy(&self, _: Place<Self>, _: Place<Self>, _: NonZeroU64, _: &Self) -> DriverResult<()> {
        match *self {}
    }

    unsafe fn fill(&self, _dst: Self, _value: u8, _len: NonZeroU64, _stream: &Self) -> DriverResult<()> {
        match *self {}
    }
}
