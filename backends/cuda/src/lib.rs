#![doc = include_str!("../README.md")]

mod answer;
mod calls;
mod context;
mod cuda;
mod devices;
mod graphs;
#[cfg(target_os = "linux")]
mod interprocess;
mod library;
mod marks;
mod memory;
mod native;
mod peer;
mod stream;
mod view;
mod virtual_memory;

pub use cuda::Cuda;
pub use cudarc;
pub use memory::CudaPtr;
pub use native::cudarc_stream;
pub use stream::{CudaEvent, CudaStream};
pub use view::{CudaView, CudaViewMut};
