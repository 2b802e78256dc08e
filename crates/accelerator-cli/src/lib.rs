#![doc = include_str!("../README.md")]

pub mod commands;
pub mod replay;
pub mod trace;
