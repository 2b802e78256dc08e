//! H, threads that share pinned host memory: case 81.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use accelerator_core::backend_kit::lock;
use accelerator_core::{MIB, PinnedBuffer, Result};

use super::context::{Device, Driver};
use super::pinned::place;
use super::random::Random;
use super::threads::in_thread;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::joined;
use crate::progress::limit;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(81, "threads_share_host_memory", threads_share_host_memory)]
}

/// The blocks of all threads with their sizes, by address, tracked independently of the allocator.
type Held = Mutex<BTreeMap<usize, u64>>;

/// A block that a thread has written to. It is removed from [`Held`] before it is freed, even if a call fails.
struct Live<'held> {
    pinned: PinnedBuffer<Driver>,
    value: u8,
    held: &'held Held,
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        lock(self.held).remove(&place(&self.pinned));
    }
}

fn threads_share_host_memory(context: &Context) -> Outcome {
    for settings in ["", "pinned_max_cached_size_mb:1", "pinned_use_background_threads:True"] {
        let device = context.device_with(64 * MIB, settings)?;
        let held = Held::default();
        std::thread::scope(|scope| {
            let held = &held;
            let threads = [0, 1, 2, 3].map(|seed| scope.spawn(move || mixed_operations(device, seed, held)));
            for thread in threads.map(|thread| thread.join()) {
                joined(thread)??;
            }
            Outcome::Ok(())
        })?;
        device.allocator().set_config(device.allocator().config().updated("pinned_use_background_threads:False")?);
        device.synchronize()?;
        device.host_allocator().empty_cache()?;
        let statistics = device.host_statistics();
        assert_eq!((statistics.allocations.current, statistics.active_requests.current), (0, 0), "{settings}");
        assert_eq!(device.backend().live_host_allocations(), 0);
        device.check_consistency();
    }
    background_thread(context)?;
    waits_for_what_another_frees(context)?;
    for call in [Call::AllocHost, Call::DeallocHost, Call::Record, Call::IsComplete, Call::IsCapturing] {
        stuck_in(context, call)?;
    }
    Ok(())
}

fn mixed_operations(device: Device, seed: u64, held: &Held) -> Result<()> {
    let mut random = Random::new(seed + 81);
    let stream = device.side_stream()?;
    let mut live: Vec<Live> = Vec::new();
    for step in 0..600_u64 {
        match random.below(20) {
            0 => device.host_allocator().empty_cache()?,
            1 => {
                let statistics = device.host_statistics();
                assert!(statistics.active_bytes.current >= 0 && statistics.allocated_bytes.current >= 0);
            }
            2..=11 if live.len() < 20 => {
                let value = (step % 251) as u8;
                let mut pinned = device.allocate_host(random.size(2 * MIB))?;
                enter(held, &pinned);
                // Only the first and last bytes are checked: an overlapping block changes one of them.
                pinned.bytes_mut()?[0] = value;
                if let Some(last) = pinned.bytes_mut()?.last_mut() {
                    *last = value;
                }
                live.push(Live { pinned, value, held });
            }
            choice if !live.is_empty() => {
                let freed = live.swap_remove(random.below(live.len() as u64) as usize);
                let (bytes, value) = (freed.pinned.bytes()?, Some(&freed.value));
                assert_eq!((bytes.first(), bytes.last()), (value, value), "another thread wrote to this block");
                if choice > 15 {
                    freed.pinned.record_use(stream)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn enter(held: &Held, pinned: &PinnedBuffer<Driver>) {
    let (start, size) = (place(pinned), pinned.block_size());
    let mut held = lock(held);
    if let Some((other, size)) = held.range(..start + pinned.block_size() as usize).next_back() {
        assert!(other + *size as usize <= start, "{pinned:?} overlaps a live one at {other:#x}");
    }
    held.insert(start, size);
}

/// Checks the background thread, which starts at the first miss. Even before that, allocations do not query events
/// themselves.
fn background_thread(context: &Context) -> Outcome {
    let device = context.device()?;
    let user = device.side_stream()?;
    let [used, free] = [device.allocate_host(1_000)?, device.allocate_host(9_000)?];
    used.record_use(user)?;
    drop((used, free));
    user.synchronize()?;
    let settings = "pinned_use_background_threads:True";
    device.allocator().set_config(device.allocator().config().updated(settings)?);
    let asked = device.calls(Call::IsComplete);
    drop(device.allocate_host(9_000)?);
    assert_eq!(device.calls(Call::IsComplete), asked, "a hit queries no event");
    assert_eq!(device.host_statistics().active_requests.current, 1);
    drop(device.allocate_host(90_000)?);
    let start = Instant::now();
    while device.host_statistics().active_requests.current > 0 {
        assert!(start.elapsed() < limit(), "no thread frees the blocks that streams are done with");
        std::thread::yield_now();
    }
    let settings = "pinned_use_background_threads:False";
    device.allocator().set_config(device.allocator().config().updated(settings)?);
    Ok(())
}

/// Checks that a thread that runs out of memory waits for another that is about to make a block available.
fn waits_for_what_another_frees(context: &Context) -> Outcome {
    let device = context.device()?;
    let user = device.side_stream()?;
    device.backend().set_host_capacity(4_096);
    let used = device.allocate_host(4_096)?;
    used.record_use(user)?;
    drop(used);
    user.synchronize()?;
    let gate = device.backend().gate(Call::IsComplete);
    let frees = in_thread(move || device.host_allocator().empty_cache());
    assert!(gate.wait_reached(limit()), "no thread queries the event");
    let asked = device.calls(Call::AllocHost);
    let needs = in_thread(move || device.allocate_host(4_096).map(drop));
    let start = Instant::now();
    while device.calls(Call::AllocHost) == asked && start.elapsed() < limit() {
        std::thread::yield_now();
    }
    gate.open();
    frees.recv_timeout(limit())??;
    needs.recv_timeout(limit())??;
    device.check_consistency();
    Ok(())
}

/// Keeps one thread inside a driver call and checks that others can still allocate and free.
fn stuck_in(context: &Context, call: Call) -> Outcome {
    let device = context.device()?;
    let user = device.side_stream()?;
    device.hold(user);
    let [used, kept] = [device.allocate_host(1_000)?, device.allocate_host(1_000)?];
    used.record_use(user)?;
    drop([device.allocate_host(1_000)?, device.allocate_host(9_000)?]);

    let gate = device.backend().gate(call);
    let stuck = in_thread(move || {
        drop(used); // records an event
        drop(device.allocate_host(1_000)?); // queries the event
        drop(device.allocate_host(90_000)?);
        device.host_allocator().empty_cache()
    });
    assert!(gate.wait_reached(limit()), "no thread calls `{}`", call.name());
    let others = in_thread(move || {
        drop(kept);
        for bytes in [1_000, 700] {
            drop(device.allocate_host(bytes)?);
        }
        device.host_statistics();
        device.host_allocator().reset_peak_statistics();
        device.allocator().set_config(device.allocator().config());
        Result::<()>::Ok(())
    });
    let went_on = others.recv_timeout(limit());
    gate.open();
    went_on.map_err(|_| format!("others wait for a thread that is inside `{}`", call.name()))??;
    stuck.recv_timeout(limit()).map_err(|_| format!("`{}` does not return", call.name()))??;
    device.release(user);
    user.synchronize()?;
    device.host_allocator().empty_cache()?;
    device.check_consistency();
    Ok(())
}
