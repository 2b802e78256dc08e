use std::path::Path;

use super::monitor::MemoryTracker;
use super::stats::TrackerStats;
use crate::picture::Profile;
use crate::plot::{Picture, PlotError, Theme};

impl TrackerStats {
    /// Draws the four figures of PyTorch's `MemoryTracker.show_traces` into one picture, `.svg` or `.png`: allocated,
    /// active and reserved memory over the operators together, and each on its own, with the markers.
    ///
    /// `picture` is the file to write. PyTorch's `path` is a file to load first, which is a separate call here:
    ///
    /// ```
    /// # use accelerator_tracker::tracker::TrackerStats;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = |name| folder.path().join(name);
    /// # TrackerStats::default().save_pytorch(path("run.pickle"))?;
    /// // PyTorch: `MemoryTracker().show_traces("run.pickle")`.
    /// TrackerStats::load(path("run.pickle"))?.show_traces(path("run.svg"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn show_traces(&self, picture: impl AsRef<Path>) -> Result<(), PlotError> {
        let title = self.device.as_deref().unwrap_or("memory");
        Picture::Traces.save(&Profile::of_tracker(title, self), picture.as_ref(), Theme::Light)
    }
}

impl MemoryTracker {
    /// Draws the recorded data to the file `picture` with [`TrackerStats::show_traces`], whose documentation also shows
    /// how to draw a saved run. PyTorch: `MemoryTracker.show_traces()`.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn show_traces(&self, picture: impl AsRef<Path>) -> Result<(), PlotError> {
        self.stats().show_traces(picture)
    }
}
