#![doc = include_str!("../README.md")]
#![allow(non_snake_case, reason = "the functions have the API's names")]

mod arguments;
mod calls;
mod context;
mod control;
mod device;
mod driver;
mod event;
mod fence;
mod files;
mod gate;
mod list;
mod memory;
mod module;
mod queue;
mod result;
mod settings;
mod spirv;
mod state;
mod structures;
mod submit;
mod tables;
mod virtual_memory;
mod wait;

pub use control::*;
pub use tables::*;
