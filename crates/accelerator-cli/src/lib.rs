#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "conformance"), allow(dead_code, reason = "what only conformance and verify use"))]

mod backends;
mod bench;
pub mod commands;
mod compare;
mod console;
pub mod convert;
mod failure;
mod markdown;
mod parallel;
mod program;
pub mod replay;
mod signals;
pub mod trace;
mod warnings;

pub use backends::{Backends, Launched, Offered, Saxpy};
pub use failure::Failure;
