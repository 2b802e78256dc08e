use super::profile::{Marker, Profile, Sample};
use crate::tracker::{self, OperatorStats, TrackerStats};

impl Profile {
    /// Creates a profile from the data of a tracker.
    pub fn of_tracker(title: &str, stats: &TrackerStats) -> Self {
        let TrackerStats { device, total_memory, start, operators, markers, num_alloc_retries } = stats;
        let sample = |operator: &OperatorStats| Sample {
            name: operator.name.as_str().into(),
            time_us: operator.time.map_or(0, |time| time.as_micros().try_into().unwrap_or(i64::MAX)),
            memory: operator.memory,
        };
        let marker = |marker: &tracker::Marker| Marker { name: marker.name.as_str().into(), call: marker.position };
        Self {
            title: title.to_owned(),
            facts: device.iter().map(|device| ("device".to_owned(), device.clone())).collect(),
            capacity: *total_memory,
            started_us: Some(0), // times are relative to the start
            has_modules: true,
            allocated_before: start.map(|start| start.allocated),
            samples: operators.iter().map(sample).collect(),
            markers: markers.iter().map(marker).collect(),
            statistics: vec![("num_alloc_retries".to_owned(), i64::try_from(*num_alloc_retries).unwrap_or(i64::MAX))],
            ..Self::default()
        }
    }
}
