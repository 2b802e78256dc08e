#![doc = include_str!("../README.md")]

mod access;
mod host;
mod launch;
mod memory;
mod worker;

pub use host::Host;
pub use launch::{KernelArgs, launch};
pub use memory::HostPtr;
pub use worker::{HostEvent, HostStream};
