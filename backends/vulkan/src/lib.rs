#![doc = include_str!("../README.md")]

mod answer;
mod copies;
mod device;
mod devices;
mod event;
mod graphs;
mod kernel;
mod library;
mod memory;
mod native;
mod offer;
mod pinned;
mod pipeline;
mod queues;
mod staging;
mod stream;
mod table;
mod timeline;
mod timestamps;
mod usage;
mod virtual_memory;
mod vulkan;
mod work;

pub use ash;
pub use event::VulkanEvent;
pub use kernel::{Argument, Kernel};
pub use memory::VulkanPtr;
pub use native::NativeDevice;
pub use stream::{NativeStream, VulkanStream};
pub use vulkan::Vulkan;
