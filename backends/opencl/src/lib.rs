#![doc = include_str!("../README.md")]

mod answer;
mod command_buffer;
mod devices;
mod graphs;
mod handle;
mod kernel_argument;
mod launch;
mod memory;
mod native;
#[cfg(feature = "ocl")]
mod ocl;
mod opencl;
mod pinned;
mod stream;
mod work;

pub use cl3;
pub use kernel_argument::KernelArgument;
pub use memory::OpenClPtr;
#[cfg(feature = "ocl")]
pub use ocl_core;
pub use opencl::OpenCl;
pub use stream::{OpenClEvent, OpenClStream};
