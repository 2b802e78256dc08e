#![doc = include_str!("../README.md")]

mod answer;
mod devices;
mod handle;
mod kernel_argument;
mod memory;
mod native;
#[cfg(feature = "ocl")]
mod ocl;
mod opencl;
mod pinned;
mod stream;

pub use cl3;
pub use kernel_argument::KernelArgument;
pub use memory::OpenClPtr;
#[cfg(feature = "ocl")]
pub use ocl_core;
pub use opencl::OpenCl;
pub use stream::{OpenClEvent, OpenClStream};
