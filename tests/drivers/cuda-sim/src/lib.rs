#![doc = include_str!("../README.md")]
#![allow(non_snake_case, reason = "the exported functions have the driver API's names")]

mod calls;
mod capture;
mod code;
mod context;
mod control;
mod device;
mod event;
mod gate;
mod graph;
mod interprocess;
mod memory;
mod ptx;
mod settings;
mod state;
mod stream;
mod thread;
mod virtual_memory;

pub use calls::*;
pub use control::*;
pub use interprocess::IpcHandle;
pub use sim_engine::out::Out;
pub use virtual_memory::{Access, Location, Properties};
