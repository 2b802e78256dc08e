use std::path::Path;

use super::monitor::MemoryTracker;
use super::stats::TrackerStats;
use crate::picture::Profile;
use crate::plot::{Picture, PlotError, Theme};

impl TrackerStats {
    /// Draws the four figures of PyTorch's `MemoryTracker.show_traces` into one picture, `.svg` or `.png`: allocated, active
    /// and reserved memory over the operators together, and each alone, with the markers.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn show_traces(&self, path: impl AsRef<Path>) -> Result<(), PlotError> {
        let title = self.device.as_deref().unwrap_or("memory");
        Picture::Traces.save(&Profile::of_tracker(title, self), path.as_ref(), Theme::Light)
    }
}

impl MemoryTracker {
    /// Draws what was recorded, as [`TrackerStats::show_traces`] does.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn show_traces(&self, path: impl AsRef<Path>) -> Result<(), PlotError> {
        self.stats().show_traces(path)
    }
}
