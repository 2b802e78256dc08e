//! Compares traces under several settings on a simulated device: the memory that they would reserve, and the smallest
//! device on which they would complete.

mod advice;
mod capacity;
mod comparison;
mod json;
mod matrix;
mod setting;
mod table;
mod trace;

pub(crate) use self::advice::Advice;
pub(crate) use self::comparison::Comparison;
pub(crate) use self::matrix::markdown;
pub(crate) use self::setting::Setting;
pub(crate) use self::table::{LEGEND, summary, text};
pub(crate) use self::trace::Trace;
