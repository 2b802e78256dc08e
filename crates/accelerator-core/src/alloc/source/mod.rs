//! Where memory comes from on a miss, and goes to on release.
//!
//! [`interface`] is what a source does; [`segments`], [`expandable`] and [`compact`] are sources, each in [`context`] of the driver
//! and the arenas; [`memory`] has them all. To add one: a folder, and its line in [`memory::Memory::source_of`].

mod compact;
mod context;
mod expandable;
mod interface;
mod memory;
mod segments;

pub use self::compact::ChunkLengths;
pub(crate) use self::compact::Compact;
pub(crate) use self::context::{Context, Failure};
pub(crate) use self::interface::Wanted;
pub(crate) use self::memory::Memory;
