#![doc = include_str!("../README.md")]
#![allow(non_camel_case_types, non_snake_case, reason = "names are those of Level Zero")]

#[macro_use]
mod lists;
#[rustfmt::skip] // generated
#[allow(missing_docs, clippy::doc_lazy_continuation, reason = "the documentation is that of the headers")]
mod bindings;
#[rustfmt::skip] // generated
#[allow(missing_docs, reason = "the documentation is that of the headers")]
#[cfg(feature = "ddi")]
pub mod ddi;
mod defaults;
mod error;
mod level_zero;
mod result;

pub use bindings::*;
pub use error::{LoadError, MissingFunction};
pub use level_zero::{LevelZero, Pointer};
