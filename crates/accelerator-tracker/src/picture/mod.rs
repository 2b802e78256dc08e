//! The plain data that pictures and reports show: a [`Profile`]. It comes from a history or a tracker, or is filled by
//! hand.

mod bins;
mod history;
mod outline;
mod profile;
mod segments;
mod text;
mod tracked;

pub(crate) use bins::{grid, size_bins};
pub(crate) use outline::outline;
pub use profile::{Largest, Marker, Profile, Sample, Series, Span};
pub use segments::{MapBlock, MapSegment, Moment};
pub(crate) use text::power;
