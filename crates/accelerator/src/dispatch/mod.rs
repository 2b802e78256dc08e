//! What can be called on a device, its allocator, an event and memory of whichever backend it is.
//!
//! Each trait has one implementation, for the core's type over any backend. `enum_dispatch` implements it for the enum
//! over the backends of this build; it can do so only for traits of this crate.

mod allocator;
mod buffer;
mod device;
mod event;
mod none;
mod pinned;

pub(crate) use allocator::AllocatorDispatch;
pub(crate) use buffer::BufferDispatch;
pub(crate) use device::DeviceDispatch;
pub(crate) use event::EventDispatch;
pub(crate) use none::NoBackend;
pub(crate) use pinned::PinnedDispatch;
