//! I, statistics: cases 82 to 87.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use accelerator_core::{Error, MIB, Statistics};

use super::consistency::{check_accumulated, check_statistics};
use super::context::Device;
use super::out_of_memory::refusal;
use super::random::Random;
use super::{Case, Context, Outcome};
use crate::outcome::joined;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(82, "every_key", every_key).of_any_policy(),
        Case::new(83, "exact_on_one_kibibyte", exact_on_one_kibibyte),
        Case::new(84, "resets", resets).of_any_policy(),
        Case::new(85, "invariants", invariants).of_any_policy(),
        Case::new(86, "concurrent_reader_sees_consistent_values", concurrent_reader).of_any_policy(),
        Case::new(87, "empty_when_unused", empty_when_unused).of_any_policy(),
    ]
}

const POOLED: [&str; 9] = [
    "active",
    "active_bytes",
    "allocated_bytes",
    "allocation",
    "inactive_split",
    "inactive_split_bytes",
    "requested_bytes",
    "reserved_bytes",
    "segment",
];
const SINGLE: [&str; 2] = ["oversize_allocations", "oversize_segments"];
const COUNTERS: [&str; 7] = [
    "max_split_size",
    "num_alloc_retries",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
    "num_ooms",
    "num_sync_all_streams",
];
const POOLS: [&str; 3] = ["all", "large_pool", "small_pool"];
const METRICS: [&str; 4] = ["allocated", "current", "freed", "peak"];

fn keys() -> Vec<String> {
    let pooled = POOLED.into_iter().flat_map(|name| POOLS.map(|pool| format!("{name}.{pool}")));
    let stats = pooled.chain(SINGLE.map(str::to_owned));
    let mut keys: Vec<_> = stats.flat_map(|stat| METRICS.map(|metric| format!("{stat}.{metric}"))).collect();
    keys.extend(COUNTERS.map(str::to_owned));
    keys.sort_unstable();
    keys
}

fn every_key(context: &Context) -> Outcome {
    let device = context.device()?;
    let allocation = device.alloc(3_000)?;
    let entries = device.statistics().entries();
    assert!(entries.iter().map(|(key, _)| key).eq(keys().iter()), "the keys must be complete and sorted");
    let map = device.statistics().to_map();
    let own = "paused_bytes";
    assert_eq!((map.len(), map.get(own)), (keys().len() + POOLS.len() * METRICS.len() + 1, Some(&0)));
    for (key, value) in entries {
        assert_eq!(map.get(&key), Some(&value), "{key}");
        if let Some(rest) = key.strip_prefix("allocation.") {
            assert_eq!(map.get(&format!("allocated.{rest}")), Some(&value), "allocated.{rest}");
        }
    }
    Ok(device.free(allocation)?)
}

/// Returns the values that are not 0.
fn non_zero(statistics: &Statistics) -> BTreeMap<String, i64> {
    statistics.entries().into_iter().filter(|(_, value)| *value != 0).collect()
}

fn exact_on_one_kibibyte(context: &Context) -> Outcome {
    let device = context.device()?;
    let (segment, rest) = (2 * MIB as i64, 2 * MIB as i64 - 1_024);
    let allocation = device.alloc(1_024)?;
    let mut expected = BTreeMap::from([("max_split_size".to_owned(), -1), ("num_device_alloc".to_owned(), 1)]);
    for (name, value) in [
        ("allocation", 1),
        ("active", 1),
        ("segment", 1),
        ("inactive_split", 1),
        ("requested_bytes", 1_024),
        ("allocated_bytes", 1_024),
        ("active_bytes", 1_024),
        ("reserved_bytes", segment),
        ("inactive_split_bytes", rest),
    ] {
        for pool in ["all", "small_pool"] {
            for metric in ["allocated", "current", "peak"] {
                expected.insert(format!("{name}.{pool}.{metric}"), value);
            }
        }
    }
    assert_eq!(non_zero(&device.statistics()), expected);

    device.free(allocation)?;
    for name in ["allocation", "active", "inactive_split"] {
        change_to_freed(&mut expected, name, 1);
    }
    for name in ["requested_bytes", "allocated_bytes", "active_bytes"] {
        change_to_freed(&mut expected, name, 1_024);
    }
    change_to_freed(&mut expected, "inactive_split_bytes", rest);
    assert_eq!(non_zero(&device.statistics()), expected);
    Ok(())
}

fn change_to_freed(expected: &mut BTreeMap<String, i64>, name: &str, value: i64) {
    for pool in ["all", "small_pool"] {
        expected.remove(&format!("{name}.{pool}.current"));
        expected.insert(format!("{name}.{pool}.freed"), value);
    }
}

fn resets(context: &Context) -> Outcome {
    let device = context.device_with(64 * MIB, "max_split_size_mb:20")?;
    let (live, freed) = (device.alloc(5_000)?, device.alloc(30 * MIB)?);
    device.free(freed)?;
    refusal(device, 100 * MIB)?;
    let before: BTreeMap<_, _> = device.statistics().entries().into_iter().collect();
    let current = |key: &str, metric: &str| before[&key.replace(metric, ".current")];

    device.allocator().reset_peak_statistics();
    for (key, value) in device.statistics().entries() {
        let expected = if key.ends_with(".peak") { current(&key, ".peak") } else { before[&key] };
        assert_eq!(value, expected, "{key} after resetting the peaks");
    }

    device.allocator().reset_accumulated_statistics();
    for (key, value) in device.statistics().entries() {
        let is_reset = key.ends_with(".allocated") || key.ends_with(".freed") || key.starts_with("num_");
        let expected = match () {
            () if is_reset => 0,
            () if key.ends_with(".peak") => current(&key, ".peak"),
            () => before[&key],
        };
        assert_eq!(value, expected, "{key} after resetting the accumulated values");
    }
    device.check_consistency();
    Ok(device.free(live)?)
}

fn invariants(context: &Context) -> Outcome {
    for settings in ["", "max_split_size_mb:20", "roundup_power2_divisions:4", "device_side_reuse:True"] {
        let device = context.device_with(200 * MIB, settings)?;
        random_steps(device, 2_000, |step| {
            if step.is_multiple_of(10) {
                device.check_consistency();
                check_accumulated(device);
            }
        })?;
        let statistics = device.statistics();
        assert_eq!(statistics.active.all.current, 0);
        let PeakedAt { allocated, reserved } = PeakedAt::of(&statistics);
        assert!(allocated > 0 && allocated <= reserved && reserved <= 200 * MIB as i64);
    }
    Ok(())
}

struct PeakedAt {
    allocated: i64,
    reserved: i64,
}

impl PeakedAt {
    fn of(statistics: &Statistics) -> Self {
        let (allocated, reserved) = (statistics.allocated_bytes.all, statistics.reserved_bytes.all);
        Self { allocated: allocated.peak, reserved: reserved.peak }
    }
}

/// Allocates, uses and frees at random on three streams, one of which is held from time to time, and frees everything.
fn random_steps(device: Device, steps: u64, after_each: impl Fn(u64)) -> Outcome {
    let streams = [device.default_stream(), device.side_stream()?, device.side_stream()?];
    let mut random = Random::new(85);
    let mut live = Vec::new();
    for step in 0..steps {
        let stream = streams[random.below(3) as usize];
        match random.below(20) {
            0 => device.allocator().empty_cache()?,
            1 => device.hold(stream),
            2 => device.release(stream),
            3..=10 => match device.alloc_on(random.size(30 * MIB), stream) {
                Ok(allocation) => live.push(allocation),
                Err(Error::OutOfMemory(_)) => device.free_all(live.drain(..))?,
                Err(error) => return Err(error.into()),
            },
            _ if live.is_empty() => {}
            choice => {
                let place = random.below(live.len() as u64) as usize;
                device.allocator().record_use(&live[place], stream)?;
                if choice > 12 {
                    device.free(live.swap_remove(place))?;
                }
            }
        }
        after_each(step);
    }
    device.free_all(live)?;
    device.backend().release_all();
    Ok(device.allocator().empty_cache()?)
}

fn concurrent_reader(context: &Context) -> Outcome {
    let device = context.device()?;
    let done = AtomicBool::new(false);
    let streams = [device.side_stream()?, device.side_stream()?];
    std::thread::scope(|scope| {
        let writers = streams.map(|stream| {
            scope.spawn(move || -> accelerator_core::Result<()> {
                let mut random = Random::new(u64::from(stream.id().get()));
                let mut live = Vec::new();
                for step in 0..2_000 {
                    if live.len() < 20 && random.below(2) == 0 {
                        live.push(device.alloc_on(random.size(4 * MIB), stream)?);
                    } else if !live.is_empty() {
                        device.free(live.swap_remove(random.below(live.len() as u64) as usize))?;
                    }
                    if step % 500 == 0 {
                        device.allocator().empty_cache()?;
                    }
                }
                device.free_all(live)
            })
        });
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads == 0 {
                check_accumulated(device);
                let snapshot = device.allocator().snapshot();
                for segment in &snapshot.segments {
                    let sum: u64 = segment.blocks.iter().map(|block| block.size).sum();
                    assert_eq!(sum, segment.total_size);
                    assert!(segment.allocated_size <= segment.active_size && segment.active_size <= sum);
                }
                reads += 1;
            }
        });
        let written = writers.map(|writer| writer.join());
        done.store(true, Ordering::Relaxed);
        for result in written {
            joined(result)??;
        }
        joined(reader.join())?;
        Outcome::Ok(())
    })?;
    check_statistics(&device.statistics());
    device.check_consistency();
    Ok(())
}

fn empty_when_unused(context: &Context) -> Outcome {
    let device = context.device()?;
    let calls = device.all_calls();
    let unused = Statistics { max_split_size: -1, ..Statistics::default() };
    assert_eq!(device.statistics(), unused);
    assert!(!device.allocator().is_used());
    device.allocator().reset_peak_statistics();
    device.allocator().reset_accumulated_statistics();
    device.allocator().empty_cache()?;
    let emptied = device.statistics();
    assert_eq!(Statistics { num_sync_all_streams: 0, ..emptied }, unused);
    assert!(device.allocator().snapshot().segments.is_empty());
    assert_eq!(device.all_calls(), calls, "the driver must not be called");
    Ok(())
}
