//! The settings, the text form that they are read from, and PyTorch's size rules, which depend on them.

mod config;
mod ignored;
mod pinned;
mod rounding;
mod text;

pub use self::config::{AllocatorConfig, Policy, RoundupDivisions};
pub(crate) use self::pinned::HostSettings;
pub(crate) use self::rounding::{Fit, MIN_BLOCK, Request, SMALL_SEGMENT, SMALL_SIZE, TOO_LARGE, in_blocks, share};
