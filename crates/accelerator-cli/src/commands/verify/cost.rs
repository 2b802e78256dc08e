#![allow(unsafe_code)] // `Backend::dealloc`

use std::num::NonZeroU64;
use std::time::Instant;

use accelerator_core::{Accelerator, Backend, Bytes, DriverResult, Error, EventFlags, KIB, MIB, Result};

use super::report::{Checked, Outcome};
use super::section::Progress;
use super::timing::Effort;
use crate::markdown::Table;

const RECORDS: u32 = 64;
const SIZES: [u64; 4] = [4 * KIB, MIB, 32 * MIB, 256 * MIB];

/// Measures the time of memory allocation by the driver and by the cache, and of other frequent calls.
pub(super) fn measure<B: Backend>(accelerator: &'static Accelerator<B>, quick: bool, progress: &Progress) -> Checked {
    let effort = Effort::new(quick);
    let free = accelerator.memory_info()?.free;
    let mut memory = Table::new(["allocate and free", "driver, ns", "cached, ns", "driver / cached"]);
    let mut wrong = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size <= free / 4).filter_map(NonZeroU64::new) {
        progress.at(Bytes(size.get()).to_string());
        let driver = driver_ns(accelerator, size, effort)?;
        let (cached, driver_calls) = cached_ns(accelerator, size, effort)?;
        if driver_calls > 0 {
            wrong.push(format!("{}: {driver_calls} driver allocations despite a warm cache", Bytes(size.get())));
        }
        let ratio = format!("{:.1}", driver / cached);
        memory.add([Bytes(size.get()).to_string(), whole(driver), whole(cached), ratio]);
    }
    let mut calls = Table::new(["call", "ns"]);
    let stream = accelerator.default_stream();
    progress.at("events");
    calls.add(["record an event".to_owned(), whole(record_ns(accelerator, effort)?)]);
    let synchronize = effort.median_ns(|| stream.synchronize())?;
    calls.add(["synchronize an idle stream".to_owned(), whole(synchronize)]);
    wrong.extend(accelerator.allocator().empty_cache().err().map(|error| error.to_string()));
    Ok(Outcome::of(format!("{memory}\n{calls}\nMedians of the host time, on one thread.\n"), wrong))
}

fn driver_ns<B: Backend>(accelerator: &'static Accelerator<B>, size: NonZeroU64, effort: Effort) -> Result<f64> {
    let (backend, device) = (accelerator.backend(), accelerator.device());
    let allocate_and_free = || -> DriverResult<()> {
        let ptr = backend.alloc(size)?;
        // SAFETY: The memory was just allocated with this size, and no work uses it.
        unsafe { backend.dealloc(ptr, size) };
        Ok(())
    };
    effort.median_ns(allocate_and_free).map_err(|source| Error::Driver { device, source })
}

/// Returns the time and the number of driver allocations, which must be 0 once the cache has the block.
fn cached_ns<B: Backend>(accelerator: &'static Accelerator<B>, size: NonZeroU64, effort: Effort) -> Result<(f64, i64)> {
    let (allocator, stream) = (accelerator.allocator(), accelerator.default_stream());
    let allocate_and_free = || -> Result<()> {
        let allocation = allocator.allocate(size, stream)?;
        Ok(allocator.free(allocation)?)
    };
    allocate_and_free()?;
    let before = allocator.statistics().num_device_alloc;
    let cached = effort.median_ns(allocate_and_free)?;
    Ok((cached, allocator.statistics().num_device_alloc - before))
}

/// Returns the time of a record while the stream's queue has room, however slow the stream is.
fn record_ns<B: Backend>(accelerator: &'static Accelerator<B>, effort: Effort) -> Result<f64> {
    let (event, stream) = (accelerator.event(EventFlags::default()), accelerator.default_stream());
    effort.median(|| {
        let start = Instant::now();
        (0..RECORDS).try_for_each(|_| event.record(stream))?;
        let took = start.elapsed();
        stream.synchronize()?;
        Ok(took.as_nanos() as f64 / f64::from(RECORDS))
    })
}

fn whole(ns: f64) -> String {
    format!("{ns:.0}")
}

#[cfg(test)]
mod tests {
    use accelerator_conformance::Sim;
    use accelerator_core::AllocatorConfig;

    use super::*;

    fn of(settings: &str) -> Outcome {
        let config = AllocatorConfig::default().updated(settings).unwrap();
        let sim = Accelerator::new(Sim::default(), 0, config).unwrap();
        measure(sim, true, &Progress::new()).unwrap()
    }

    #[test]
    fn a_cache_that_does_not_keep_memory_is_found() {
        let Outcome::Passed(text) = of("") else { panic!("the cache keeps memory") };
        for size in ["4.00 KiB", "1.00 MiB", "32.00 MiB", "256.00 MiB"] {
            assert!(text.contains(&format!("| {size:<17} |")), "{text}");
        }
        assert!(matches!(of("caching:False"), Outcome::Failed(_, wrong) if wrong.len() == 4));
    }
}
