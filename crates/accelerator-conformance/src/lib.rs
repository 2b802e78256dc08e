#![doc = include_str!("../README.md")]

mod calls;
mod controls;
mod sim;
mod timeline;

pub use calls::{Call, Calls};
pub use controls::Controls;
pub use sim::{Sim, SimEvent, SimPtr, SimStream};
