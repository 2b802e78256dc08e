//! Publishes the statistics of a device while a program runs, through the facade of the crate `metrics`. The program
//! chooses the exporter, for example one for Prometheus.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use accelerator::DeviceArg;
use accelerator::memory::DeviceMemory;
use metrics::{counter, gauge};

/// Publishes the memory statistics of a device at intervals until it is dropped, and then a last time.
///
/// See [`publish`] for the names.
#[derive(Debug)]
#[must_use = "it stops publishing when dropped"]
pub struct LiveStatistics {
    /// Dropped at the end, which stops the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why publishing cannot start.
#[derive(thiserror::Error)]
pub enum LiveError {
    /// The device cannot be opened.
    #[error(transparent)]
    Accelerator(#[from] accelerator::Error),
    /// The system cannot start a thread.
    #[error("cannot start the thread that publishes statistics: {0}")]
    Thread(#[from] io::Error),
}

accelerator_core::debug_as_display!(LiveError);

impl LiveStatistics {
    /// Opens the device, and publishes its statistics now and then after each `interval`, on a separate thread. The
    /// shortest interval is a millisecond.
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
            let _ = thread.join(); // a panic comes from the exporter, and its message was already printed
        }
    }
}

/// Publishes the memory statistics of a device once.
///
/// The names come from PyTorch's keys. `allocated_bytes.small_pool.current` is the gauge
/// `accelerator_memory_allocated_bytes{device="cuda:0",pool="small_pool"}`, and its `peak` is the gauge
/// `accelerator_memory_allocated_bytes_peak`. `allocated` and `freed`, the totals since the start, are the counters
/// `accelerator_memory_allocated_bytes_allocated_total` and `…_freed_total`. The pool `all` is the sum of the others,
/// so do not sum over `pool`. If the program resets a counter, the published counter keeps its value until the new
/// value exceeds it. `num_ooms` and similar keys are counters such as `accelerator_memory_num_ooms_total`.
/// `max_split_size` is a gauge, and so is `accelerator_memory_paused_bytes`, which PyTorch does not have: the reserved
/// bytes that paused pools have given back.
pub fn publish(memory: &DeviceMemory) {
    let device = memory.device().to_string();
    let statistics = memory.statistics();
    gauge!("accelerator_memory_paused_bytes", "device" => device.clone()).set(statistics.paused_bytes as f64);
    for (key, value) in statistics.entries() {
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
