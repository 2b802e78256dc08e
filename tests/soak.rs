//! A soak test: four devices that are almost full, sixteen threads that allocate on them, readers of the statistics,
//! and a history of each device. The host memory must stay flat, and the statistics exact whenever the threads rest.
//! It prints how long allocations take.
//!
//! `ACCELERATOR_SOAK_SECONDS` sets the duration. The default is three seconds, which checks only that the test works.
#![cfg(target_os = "linux")] // where the process reads how much memory it has
#![allow(clippy::unwrap_used, clippy::panic)] // helpers, too, which clippy does not treat as tests

mod readers;
#[path = "model/relations.rs"]
mod relations;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, ContextsOf, Error, GIB, MIB, Recording, Stream};
use fastrand::Rng;
use hdrhistogram::Histogram;

use readers::read_while;

/// The settings of each device.
const DEVICES: [&str; 4] = ["", "expandable_segments:True", "policy:compact", "max_split_size_mb:64"];
const THREADS: usize = 16;
const CAPACITY: u64 = 2 * GIB;
/// What the threads of a device hold together: most of it, so that memory runs out now and then.
const HELD: u64 = CAPACITY / 100 * 85;
const ROUNDS: u32 = 12;
/// How much host memory may grow after the first third of the rounds.
const GROWTH: u64 = 8 * MIB;

/// A thread's blocks, and what it has counted.
struct Worker {
    device: usize,
    accelerator: &'static Accelerator<Sim>,
    streams: [Stream<Sim>; 2],
    random: Rng,
    held: Vec<Allocation<Sim>>,
    bytes: u64,
    allocations: i64,
    failed: i64,
    /// Nanoseconds that allocations took.
    times: Histogram<u64>,
}

impl Worker {
    fn new(number: usize, devices: &[&'static Accelerator<Sim>]) -> Self {
        let device = number % devices.len();
        let accelerator = devices[device];
        let streams = [accelerator.stream(0).unwrap(), accelerator.default_stream()];
        let (random, times) = (Rng::with_seed(number as u64), Histogram::new(3).unwrap());
        let held = Vec::new();
        Self { device, accelerator, streams, random, held, bytes: 0, allocations: 0, failed: 0, times }
    }

    fn run(&mut self, until: Instant) {
        while Instant::now() < until {
            (0..64).for_each(|_| self.step());
        }
        let driver = self.accelerator.backend();
        self.streams.iter().for_each(|stream| driver.release(stream.native()));
    }

    fn step(&mut self) {
        let share = HELD * DEVICES.len() as u64 / THREADS as u64;
        let stream = self.streams[usize::from(self.random.u8(..4) == 0)];
        match self.random.u8(..100) {
            0..55 if self.bytes < share => self.allocate(stream),
            0..90 => self.free(),
            90..97 => {
                let chosen = self.random.choice(&self.held);
                chosen.into_iter().for_each(|block| self.accelerator.allocator().record_use(block, stream).unwrap());
            }
            97 => self.accelerator.backend().hold(stream.native()),
            _ => self.accelerator.backend().release(stream.native()),
        }
    }

    /// Allocates up to 32 MiB; small sizes are as likely as large ones.
    fn allocate(&mut self, stream: Stream<Sim>) {
        let bytes = 1 << self.random.u32(6..25);
        let bytes = NonZeroU64::new(bytes + self.random.u64(..bytes)).unwrap();
        let start = Instant::now();
        let allocated = self.accelerator.allocator().allocate(bytes, stream);
        self.times.record(start.elapsed().as_nanos() as u64).unwrap();
        match allocated {
            Ok(block) => {
                self.bytes += block.size();
                self.allocations += 1;
                self.held.push(block);
            }
            Err(Error::OutOfMemory(_)) => {
                self.failed += 1;
                (0..4).for_each(|_| self.free());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&mut self) {
        if !self.held.is_empty() {
            let block = self.held.swap_remove(self.random.usize(..self.held.len()));
            self.bytes -= block.size();
            self.accelerator.allocator().free(block).unwrap();
        }
    }
}

/// Reads everything until a flag is set.
fn read(devices: &[&'static Accelerator<Sim>], over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for device in devices {
            relations::check_relations(&device.allocator().statistics());
            assert!(device.allocator().history().entries.len() <= 1000);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Compares the statistics of a device with the counts of its threads, which rest.
fn check(device: &Accelerator<Sim>, workers: &[&Worker]) {
    let statistics = device.allocator().statistics();
    let sum = |count: fn(&Worker) -> i64| workers.iter().map(|worker| count(worker)).sum::<i64>();
    let allocation = statistics.allocation.all;
    let counted =
        (statistics.allocated_bytes.all.current, allocation.current, allocation.allocated, statistics.num_ooms);
    let expected = (
        sum(|worker| worker.bytes as i64),
        sum(|worker| worker.held.len() as i64),
        sum(|worker| worker.allocations),
        sum(|worker| worker.failed),
    );
    assert_eq!(counted, expected, "allocated bytes, blocks, allocations, failures on {}", device.device());
}

/// Returns the bytes of the process that are in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn host_memory_stays_flat_and_statistics_exact() {
    let seconds = std::env::var("ACCELERATOR_SOAK_SECONDS").map_or(3, |text| text.parse().unwrap());
    let devices = DEVICES.map(|settings| {
        let config = AllocatorConfig::default().updated(settings).unwrap();
        let device = Accelerator::new(Sim::new(CAPACITY), 0, config).unwrap();
        let recording = Recording { max_entries: 1000, contexts: ContextsOf::State, capture: None };
        device.allocator().record_history(Some(recording));
        device
    });
    let mut workers: Vec<_> = (0..THREADS).map(|number| Worker::new(number, &devices)).collect();
    let mut sizes = Vec::new();
    for round in 1..=ROUNDS {
        let until = Instant::now() + Duration::from_secs(seconds) / ROUNDS;
        read_while(workers.iter_mut().map(|worker| || worker.run(until)), 2, |over| read(&devices, over));
        for (number, device) in devices.iter().enumerate() {
            let own: Vec<_> = workers.iter().filter(|worker| worker.device == number).collect();
            check(device, &own);
        }
        sizes.push(resident());
        println!("round {round}: {} MiB of host memory", sizes[sizes.len() - 1] / MIB);
    }
    print_times(&workers);
    assert!(workers.iter().any(|worker| worker.failed > 0), "memory never ran out");
    let settled = sizes[sizes.len() / 3..].iter().min().unwrap();
    let last = sizes[sizes.len() - 1];
    assert!(last <= settled + GROWTH, "host memory has grown from {settled} to {last} bytes");
}

fn print_times(workers: &[Worker]) {
    println!("nanoseconds of an allocation, by settings: median, 90 %, 99 %, 99.9 %, 99.99 %, most; how many");
    for (number, settings) in DEVICES.iter().enumerate() {
        let mut times = Histogram::<u64>::new(3).unwrap();
        workers.iter().filter(|worker| worker.device == number).for_each(|worker| times.add(&worker.times).unwrap());
        let at = [0.5, 0.9, 0.99, 0.999, 0.9999].map(|quantile| times.value_at_quantile(quantile));
        println!("\"{settings}\": {at:?}, {}; {}", times.max(), times.len());
    }
}
