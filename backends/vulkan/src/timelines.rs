//! All streams of a device, for operations that wait for all work.

use std::sync::{Arc, Mutex, Weak};

use crate::device::lock;
use crate::timeline::Timeline;

#[derive(Debug, Default)]
pub(crate) struct Timelines(Mutex<Vec<Weak<Timeline>>>);

impl Timelines {
    pub(crate) fn add(&self, timeline: &Arc<Timeline>) {
        let mut all = lock(&self.0);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(timeline));
    }

    /// Waits for all work submitted so far.
    pub(crate) fn finish(&self) {
        let all: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for timeline in all {
            let _ = timeline.finish(); // fails only if the device is lost, which ends all work
        }
    }
}
