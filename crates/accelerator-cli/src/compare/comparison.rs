use std::time::Duration;

use accelerator_core::{GIB, PoolStat};
use indicatif::ProgressBar;

use super::capacity::smallest;
use super::setting::Setting;
use super::trace::Trace;
use crate::failure::Failure;
use crate::parallel::on_threads;
use crate::replay::Outcome;
use crate::trace::live_at_peak;

/// A trace under several settings.
pub(crate) struct Comparison {
    /// The name of the trace.
    pub(crate) name: String,
    /// The number of allocator operations in it.
    pub(crate) operations: u64,
    /// The most bytes that are live at once, each allocation rounded up to 512 bytes.
    pub(crate) live: u64,
    /// The memory of the device in bytes, or `None` if it has as much as is requested.
    pub(crate) capacity: Option<u64>,
    pub(crate) rows: Vec<Row>,
}

/// The result of a replay under some settings.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) setting: Setting,
    /// Peaks, in bytes.
    pub(crate) requested: u64,
    pub(crate) reserved: u64,
    /// The peak of the free bytes in segments that are partly in use.
    pub(crate) in_pieces: u64,
    /// Device calls that reserve or release memory.
    pub(crate) calls: u64,
    /// The host time of an allocator operation.
    pub(crate) time: Duration,
    /// Whether all requests were served.
    pub(super) completes: bool,
    /// The smallest device on which the trace completes, or `None` if it does not complete up to the capacity.
    pub(crate) smallest: Option<u64>,
}

/// A capacity that is practically unlimited, but far below the end of the simulated device's addresses.
pub(super) const ENDLESS: u64 = (16 << 10) * GIB;

/// The number of timed replays. The fastest counts.
const TIMED: u64 = 3;

impl Comparison {
    /// Replays a trace under each of the settings, and then on smaller and smaller devices. Without a capacity, the
    /// device has as much memory as is requested.
    ///
    /// # Errors
    /// [`Failure::Line`] for a trace that cannot be replayed.
    pub(crate) fn of(
        trace: &Trace,
        settings: &[Setting],
        capacity: Option<u64>,
        progress: &ProgressBar,
    ) -> Result<Self, Failure> {
        let most = capacity.unwrap_or(ENDLESS);
        progress.inc_length(settings.len() as u64 * TIMED);
        let mut rows = Vec::new();
        // One by one, since concurrent replays would disturb each other's times.
        for setting in settings {
            let mut row = Row::of(trace, setting, most, progress)?;
            for _ in 1..TIMED {
                row.time = row.time.min(Row::of(trace, setting, most, progress)?.time);
            }
            rows.push(row);
        }
        on_threads(rows.iter_mut().filter(|row| row.completes), |row| {
            let smallest = smallest(trace, &row.setting, row.reserved, most, progress)?;
            row.smallest = Some(smallest);
            Ok(())
        })?;
        let (name, operations, live) = (trace.name.clone(), trace.operations(), live_at_peak(&trace.lines));
        Ok(Self { name, operations, live, capacity, rows })
    }

    /// Returns the ratio of a row's smallest device to the bytes that are live at the peak.
    pub(crate) fn over_live(&self, row: &Row) -> Option<f64> {
        row.smallest.map(|smallest| smallest as f64 / self.live as f64)
    }

    /// Returns the row of these settings.
    pub(crate) fn row(&self, setting: &Setting) -> Option<&Row> {
        let is_it = |row: &&Row| (row.setting.config, row.setting.maps) == (setting.config, setting.maps);
        self.rows.iter().find(is_it)
    }
}

impl Row {
    fn of(trace: &Trace, setting: &Setting, capacity: u64, progress: &ProgressBar) -> Result<Self, Failure> {
        let mut replayer = trace.replayer(setting, capacity, true)?;
        let mut completes = true;
        for line in &trace.lines {
            let outcome = trace.step(&mut replayer, line)?;
            completes &= !outcome.lacks_memory();
            if let Outcome::NotResumed(_) = outcome {
                break; // what follows needs the pool
            }
        }
        let statistics = replayer.accelerator().allocator().statistics();
        let (operations, time) = replayer.operations();
        replayer.end()?;
        progress.inc(1);
        let peak = |stat: PoolStat| stat.all.peak.unsigned_abs();
        let each = time.unwrap_or_default().as_nanos() / u128::from(operations.max(1));
        Ok(Self {
            setting: setting.clone(),
            requested: peak(statistics.requested_bytes),
            reserved: peak(statistics.reserved_bytes),
            in_pieces: peak(statistics.inactive_split_bytes),
            calls: (statistics.num_device_alloc + statistics.num_device_free).unsigned_abs(),
            time: Duration::from_nanos(u64::try_from(each).unwrap_or(u64::MAX)),
            completes,
            smallest: None,
        })
    }

    /// Returns the ratio of reserved to requested bytes.
    pub(crate) fn overhead(&self) -> f64 {
        self.reserved as f64 / self.requested as f64
    }
}
