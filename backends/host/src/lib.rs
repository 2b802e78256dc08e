#![doc = include_str!("../README.md")]

mod access;
mod graphs;
mod host;
#[cfg(target_os = "linux")]
mod interprocess;
mod launch;
mod memory;
mod process;
#[cfg(target_os = "linux")]
mod ranges;
#[cfg(target_os = "linux")]
mod virtual_memory;
mod worker;

pub use access::Touched;
pub use host::Host;
pub use launch::{KernelArgs, launch, launch_named, launch_repeatable};
pub use memory::HostPtr;
pub use worker::{HostEvent, HostStream};
