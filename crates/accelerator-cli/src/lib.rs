#![doc = include_str!("../README.md")]

pub mod backends;
mod bench;
pub mod commands;
mod compare;
pub mod console;
pub mod convert;
mod failure;
mod kernels;
mod markdown;
mod parallel;
pub mod replay;
pub mod trace;
pub mod warnings;

pub use failure::Failure;
