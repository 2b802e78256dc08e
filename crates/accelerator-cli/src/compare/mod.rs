//! Traces under several settings on a simulated device: what they would reserve, and how small a device they would run
//! on.

mod advice;
mod capacity;
mod comparison;
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
