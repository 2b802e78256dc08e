//! The statistics of a device while a program runs, through the facade of the crate `metrics`: the program chooses the exporter,
//! of Prometheus for example.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use accelerator::DeviceArg;
use accelerator::memory::DeviceMemory;
use metrics::{counter, gauge};

/// Publishes the statistics of a device's memory again and again, until it is dropped; then a last time.
///
/// See [`publish`] for the names.
#[derive(Debug)]
#[must_use = "dropped, it publishes no more"]
pub struct LiveStatistics {
    /// Taken when it ends, which the thread takes for the sign to do so too.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why nothing is published.
#[derive(thiserror::Error)]
pub enum LiveError {
    /// The device cannot be opened.
    #[error(transparent)]
    Accelerator(#[from] accelerator::Error),
    /// The system gives no thread.
    #[error("cannot start the thread that publishes statistics: {0}")]
    Thread(#[from] io::Error),
}

accelerator_core::debug_as_display!(LiveError);

impl LiveStatistics {
    /// Publishes now, and then each time when `interval` has passed, on a thread of its own. Opens the device. Intervals under
    /// a millisecond are one.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn start<'a>(device: impl Into<DeviceArg<'a>>, interval: Duration) -> Result<Self, LiveError> {
        let memory = DeviceMemory::open(device)?;
        let interval = interval.max(Duration::from_millis(1));
        let (running, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("accelerator-live".to_owned()).spawn(move || {
            publish(&memory);
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                publish(&memory);
            }
            publish(&memory);
        })?;
        Ok(Self { running: Some(running), thread: Some(thread) })
    }
}

impl Drop for LiveStatistics {
    fn drop(&mut self) {
        self.running.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic is the exporter's, which has been told
        }
    }
}

/// Publishes the statistics of a device's memory once.
///
/// The names come from PyTorch's keys: `allocated_bytes.small_pool.current` is the gauge
/// `accelerator_memory_allocated_bytes{device="cuda:0",pool="small_pool"}`, its `peak` the gauge
/// `accelerator_memory_allocated_bytes_peak`, and `allocated` and `freed`, what was taken and given back since the start, the
/// counters `accelerator_memory_allocated_bytes_allocated_total` and `…_freed_total`. The pool `all` is the sum of the others:
/// do not sum over `pool`. A counter stays where it is while the program has set it back, until it is passed again.
/// `num_ooms` and its like are counters as `accelerator_memory_num_ooms_total`, `max_split_size` is a gauge.
pub fn publish(memory: &DeviceMemory) {
    let device = memory.device().to_string();
    for (key, value) in memory.statistics().entries() {
        let parts: Vec<&str> = key.split('.').collect();
        let (name, pool, metric) = match parts[..] {
            [name, pool, metric] => (name, Some(pool), metric),
            [name, metric] => (name, None, metric),
            _ => (key.as_str(), None, if key.starts_with("num_") { "counted" } else { "current" }),
        };
        let mut labels = vec![("device", device.clone())];
        labels.extend(pool.map(|pool| ("pool", pool.to_owned())));
        let name = format!("accelerator_memory_{name}");
        let count = value.unsigned_abs(); // counters are never negative
        match metric {
            "current" => gauge!(name, &labels).set(value as f64),
            "counted" => counter!(format!("{name}_total"), &labels).absolute(count),
            "peak" => gauge!(format!("{name}_peak"), &labels).set(value as f64),
            metric => counter!(format!("{name}_{metric}_total"), &labels).absolute(count),
        }
    }
}
