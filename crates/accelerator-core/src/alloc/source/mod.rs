//! Where memory comes from on a miss, and where it goes when it is released.
//!
//! [`interface`] defines what a source does. [`segments`], [`expandable`] and [`compact`] are sources. They use the
//! driver and the arenas through [`context`], and take pages in [`turns`]. [`memory`] contains them all. To add a
//! source, add a folder, and an entry in the list of [`memory::Memory::new`].

mod compact;
mod context;
mod expandable;
mod interface;
mod memory;
mod segments;
mod turns;

pub use self::compact::ChunkLengths;
pub(crate) use self::compact::Compact;
pub(crate) use self::context::{Context, Failure, Grown};
pub(crate) use self::interface::{Entry, Limits, Wanted};
pub(crate) use self::memory::Memory;
