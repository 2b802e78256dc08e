//! The facade against PyTorch's documentation of `torch.accelerator`.
//!
//! The current accelerator, the opened devices and the environment belong to the process. Each test therefore runs in
//! its own process, in which the host has three devices and the other backends have none. Tests on OpenCL and
//! Vulkan run where the machine has a device.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test panics")]

#[path = "facade/arguments.rs"]
mod arguments;
mod cases;
#[path = "facade/current.rs"]
mod current;
#[path = "facade/endings.rs"]
mod endings;
#[path = "facade/environment.rs"]
mod environment;
#[cfg(target_os = "linux")]
#[path = "facade/fork.rs"]
mod fork;
#[path = "facade/graphs.rs"]
mod graphs;
#[path = "facade/guards.rs"]
mod guards;
#[path = "facade/mem_pools.rs"]
mod mem_pools;
#[path = "facade/memory.rs"]
mod memory;
#[path = "facade/opencl.rs"]
mod opencl;
#[path = "facade/pinned.rs"]
mod pinned;
#[path = "facade/process.rs"]
mod process;
#[path = "facade/settings.rs"]
mod settings;
#[cfg(target_os = "linux")]
#[path = "facade/sharing.rs"]
mod sharing;
#[path = "facade/vulkan.rs"]
mod vulkan;
#[path = "facade/work.rs"]
mod work;

use libtest_mimic::Arguments;

fn main() {
    let trials = [
        arguments::trials(),
        current::trials(),
        endings::trials(),
        environment::trials(),
        #[cfg(target_os = "linux")]
        fork::trials(),
        graphs::trials(),
        guards::trials(),
        mem_pools::trials(),
        memory::trials(),
        opencl::trials(),
        pinned::trials(),
        settings::trials(),
        #[cfg(target_os = "linux")]
        sharing::trials(),
        vulkan::trials(),
        work::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit();
}
