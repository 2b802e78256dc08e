//! The exported functions of the driver API, by subject.

mod capture;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod interprocess;
mod kernel;
mod memory;
mod pointer;
mod process;
mod stream;
mod stream_memory;
mod virtual_memory;

pub use capture::*;
pub use context::*;
pub use copy::*;
pub use device::*;
pub use event::*;
pub use graph::*;
pub use interprocess::*;
pub use kernel::*;
pub use memory::*;
pub use pointer::*;
pub use process::*;
pub use stream::*;
pub use stream_memory::*;
pub use virtual_memory::*;
