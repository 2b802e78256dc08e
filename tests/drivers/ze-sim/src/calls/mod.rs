//! The functions of the API, by subject.

mod append;
mod context;
mod device;
mod driver;
mod event;
mod fence;
mod kernel;
mod list;
mod memory;
mod module;
mod queue;
mod sysman;
mod virtual_memory;

pub(crate) use append::*;
pub(crate) use context::*;
pub(crate) use device::*;
pub(crate) use driver::*;
pub(crate) use event::*;
pub(crate) use fence::*;
pub(crate) use kernel::*;
pub(crate) use list::*;
pub(crate) use memory::*;
pub(crate) use module::*;
pub(crate) use queue::*;
pub(crate) use sysman::*;
pub(crate) use virtual_memory::*;
