use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stats::{Marker, MemoryUse, OperatorStats, TrackerStats};

/// The last run of a tracker. Names are built when they are requested, not while the program runs.
pub(super) struct Recording {
    /// The loaded data, or the state at the start.
    pub(super) before: TrackerStats,
    started: Instant,
    retries_at_start: u64,
    names: HashMap<Arc<str>, Known>,
    operators: Vec<Recorded>,
}

/// A name, and the number of operators with it.
struct Known {
    name: Arc<str>,
    count: u64,
}

struct Recorded {
    module: Option<Arc<str>>,
    name: Arc<str>,
    count: u64,
    time: Duration,
    memory: MemoryUse,
}

impl Recording {
    /// Creates a recording that contains only the data `before`.
    pub(super) fn new(before: TrackerStats, retries_at_start: u64) -> Self {
        let (names, operators) = (HashMap::new(), Vec::new());
        Self { before, started: Instant::now(), retries_at_start, names, operators }
    }

    pub(super) fn operator(&mut self, module: Option<Arc<str>>, name: &str, memory: MemoryUse) {
        let time = self.started.elapsed();
        let (name, count) = self.next_of(name);
        self.operators.push(Recorded { module, name, count, time, memory });
    }

    pub(super) fn marker(&mut self, name: &str) {
        let time = Some(self.started.elapsed());
        let position = self.operators.len();
        self.before.markers.push(Marker { name: name.to_owned(), position, time });
    }

    /// Returns how often the allocator retried during the run, given its total.
    pub(super) fn retries(&self, total: u64) -> u64 {
        total.saturating_sub(self.retries_at_start) // the total is lower if the counter was reset
    }

    pub(super) fn stats(&self) -> TrackerStats {
        let mut stats = self.before.clone();
        stats.operators.extend(self.operators.iter().map(Recorded::stats));
        stats
    }

    /// Returns the shared name, and how many operators had it before.
    fn next_of(&mut self, name: &str) -> (Arc<str>, u64) {
        if let Some(known) = self.names.get_mut(name) {
            known.count += 1;
            return (Arc::clone(&known.name), known.count - 1);
        }
        let shared: Arc<str> = name.into();
        self.names.insert(Arc::clone(&shared), Known { name: Arc::clone(&shared), count: 1 });
        (shared, 0)
    }
}

impl Recorded {
    fn stats(&self) -> OperatorStats {
        let Self { module, name, count, time, memory } = self;
        let name = match module {
            Some(module) => format!("{module}.{name}_{count}"),
            None => format!("{name}_{count}"),
        };
        OperatorStats { name, time: Some(*time), memory: *memory }
    }
}
