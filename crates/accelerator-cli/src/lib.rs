#![doc = include_str!("../README.md")]

pub mod backends;
mod bench;
pub mod commands;
pub mod convert;
mod failure;
mod kernels;
pub mod replay;
pub mod trace;

pub use failure::Failure;
