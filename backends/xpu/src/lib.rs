#![doc = include_str!("../README.md")]

mod answer;
mod context;
mod device;
mod devices;
mod event;
mod graphs;
#[cfg(target_os = "linux")]
mod interprocess;
mod kernel;
mod library;
mod memory;
mod native;
mod peer;
mod queue;
mod signal;
mod twice;
mod usage;
mod virtual_memory;
mod work;
mod xpu;

pub use answer::of as answer;
pub use event::XpuEvent;
pub use kernel::{Argument, Kernel, Module, ModuleError};
pub use level_zero_sys as sys;
pub use memory::XpuPtr;
pub use queue::XpuStream;
pub use xpu::Xpu;
