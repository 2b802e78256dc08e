#![doc = include_str!("../README.md")]
#![allow(non_snake_case, reason = "the exported functions have the names that the driver API gives them")]

mod backing;
mod calls;
mod capture;
mod code;
mod context;
mod control;
mod device;
mod device_memory;
mod event;
mod faults;
mod gate;
mod host_memory;
mod kernel;
mod random;
mod resolve;
mod scheduler;
mod settings;
mod state;
mod stream;
mod thread;
mod virtual_memory;
mod work;

pub use calls::*;
pub use control::*;
pub use gate::Out;
pub use virtual_memory::{Access, Location, Properties};
