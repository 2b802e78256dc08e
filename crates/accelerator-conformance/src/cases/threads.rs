//! K, threads and process: cases 93 to 97.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Error, MIB, Stream};

use super::context::{Device, Driver, address};
use super::interleavings::interleavings_at_driver_calls;
use super::random::Random;
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::joined;
use crate::progress::limit;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(93, "many_threads", many_threads).of_any_policy(),
        Case::new(94, "interleavings_at_driver_calls", interleavings_at_driver_calls).of_any_policy(),
        Case::new(95, "no_lock_across_driver_calls", no_lock_across_driver_calls).of_any_policy(),
        Case::new(96, "thread_end_returns_its_cache", thread_end_returns_its_cache).of_any_policy(),
        Case::new(97, "driver_gone_first", driver_gone_first).of_any_policy(),
    ]
}

/// The blocks of all threads with their sizes, by address, tracked independently of the allocator.
type Held = Mutex<BTreeMap<u64, u64>>;

fn many_threads(context: &Context) -> Outcome {
    work_on_many_threads(context.device_with(256 * MIB, "")?)?;
    work_on_many_threads(context.expandable_device()?)
}

fn work_on_many_threads(device: Device) -> Outcome {
    let shared = device.side_stream()?;
    let streams = [device.side_stream()?, device.side_stream()?, shared, shared];
    let held = Held::default();
    std::thread::scope(|scope| {
        let held = &held;
        let threads = streams.map(|stream| scope.spawn(move || mixed_operations(device, stream, shared, held)));
        for thread in threads.map(|thread| thread.join()) {
            joined(thread)??;
        }
        Outcome::Ok(())
    })?;
    assert_eq!(device.statistics().allocation.all.current, 0);
    device.check_consistency();
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0);
    device.check_consistency();
    Ok(())
}

fn mixed_operations(
    device: Device,
    stream: Stream<Driver>,
    shared: Stream<Driver>,
    held: &Held,
) -> accelerator_core::Result<()> {
    let held = || lock(held);
    let mut random = Random::new(u64::from(stream.id().get()) + 93);
    let mut live = Vec::new();
    for _ in 0..2_000 {
        match random.below(100) {
            0 => device.allocator().empty_cache()?,
            1..=4 => {
                let statistics = device.statistics();
                assert!(statistics.allocated_bytes.all.current <= statistics.reserved_bytes.all.current);
            }
            5..=55 if live.len() < 30 => match device.alloc_on(random.size(4 * MIB), stream) {
                Ok(allocation) => {
                    let (start, end) = (address(&allocation), address(&allocation) + allocation.size());
                    let mut held = held();
                    if let Some((other, size)) = held.range(..end).next_back() {
                        assert!(other + size <= start, "{allocation:?} overlaps a live one at {other:#x}");
                    }
                    held.insert(start, allocation.size());
                    live.push(allocation);
                }
                Err(Error::OutOfMemory(_)) => {}
                Err(error) => return Err(error),
            },
            choice if !live.is_empty() => {
                let allocation = live.swap_remove(random.below(live.len() as u64) as usize);
                if choice > 90 {
                    device.allocator().record_use(&allocation, shared)?;
                }
                held().remove(&address(&allocation));
                device.free(allocation)?;
            }
            _ => {}
        }
    }
    for allocation in live {
        held().remove(&address(&allocation));
        device.free(allocation)?;
    }
    Ok(())
}

fn no_lock_across_driver_calls(context: &Context) -> Outcome {
    // Under the policy `compact` all memory is mapped, if the driver supports that.
    let maps_all = context.is_compact() && context.has_virtual_memory();
    let segments = if maps_all { &[] } else { &[Call::Alloc, Call::Dealloc][..] };
    let others = [
        Call::Event,
        Call::Record,
        Call::IsComplete,
        Call::WaitHost,
        Call::MemoryInfo,
        Call::Stream,
        Call::Synchronize,
    ];
    for call in segments.iter().chain(&others) {
        stuck_in(context, context.device()?, *call)?;
    }
    let mapping = [Call::Create, Call::Map, Call::Unmap, Call::Destroy, Call::Release];
    for call in mapping.into_iter().filter(|_| context.has_virtual_memory()) {
        stuck_in(context, context.expandable_device()?, call)?;
    }
    Ok(())
}

/// Keeps one thread inside a driver call and checks that others can still allocate and free on the same stream.
fn stuck_in(context: &Context, device: Device, call: Call) -> Outcome {
    let (own, user) = (device.default_stream(), device.side_stream()?);
    // Under `compact`, a request for new memory waits for threads that obtain or return some, so stream `user` gets
    // memory now.
    let elsewhere = context.is_compact().then(|| device.alloc_on(512, user)).transpose()?;
    device.hold(user);
    // Set up memory that can be released, a block that another stream uses, and two cached or live small blocks.
    let used = device.alloc(15 * MIB)?;
    device.allocator().record_use(&used, user)?;
    let [whole, small, kept] = [device.alloc(30 * MIB)?, device.alloc(512)?, device.alloc(512)?];
    device.free_all([whole, small])?;

    let gate = device.backend().gate(call);
    let stuck = in_thread(move || {
        if matches!(call, Call::Alloc | Call::Create | Call::Map) {
            device.free_all([device.alloc(80 * MIB)?])?;
        }
        device.free(used)?; // records an event
        device.free_all([device.alloc(512)?])?; // queries the event
        device.allocator().empty_cache()?; // waits for it
        device.allocator().largest_available()?;
        device.dedicated_stream(0)?;
        own.synchronize()
    });
    assert!(gate.wait_reached(limit()), "no thread calls `{}`", call.name());

    let others = in_thread(move || {
        let small = device.alloc(512)?;
        device.allocator().record_use(&kept, own)?;
        device.free_all([small, kept])?;
        device.statistics();
        device.allocator().snapshot();
        device.allocator().set_config(device.allocator().config());
        device.allocator().reset_peak_statistics();
        let elsewhere = device.alloc_on(512, user)?;
        device.free(elsewhere)
    });
    let went_on = others.recv_timeout(limit());
    gate.open();
    went_on.map_err(|_| format!("others wait for a thread that is inside `{}`", call.name()))??;
    stuck.recv_timeout(limit()).map_err(|_| format!("`{}` does not return", call.name()))??;
    device.release(user);
    device.free_all(elsewhere)?;
    device.allocator().empty_cache()?;
    device.check_consistency();
    assert_eq!(device.reserved(), 0);
    Ok(())
}

/// Runs the closure in its own thread. If it is stuck in a call, the case can still end.
pub(super) fn in_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // If the case has failed meanwhile, nothing receives the result.
        let _ = sender.send(run());
    });
    receiver
}

fn thread_end_returns_its_cache(context: &Context) -> Outcome {
    let device = context.device()?;
    let stream = device.side_stream()?;
    let place = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let allocation = device.alloc_on(MIB, stream)?;
            let place = address(&allocation);
            device.free(allocation).map(|()| place)
        });
        thread.join()
    });
    let place = joined(place)??;
    let again = device.alloc_on(MIB, stream)?;
    assert_eq!(address(&again), place, "other threads can use the blocks that a thread cached");
    device.free(again)?;
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0);
    device.check_consistency();
    Ok(())
}

fn driver_gone_first(context: &Context) -> Outcome {
    let device = context.device()?;
    let (own, user) = (device.default_stream(), device.side_stream()?);
    let used = device.buffer(MIB, own)?;
    used.record_use(user)?;
    let plain = device.buffer(MIB, own)?;
    let event = device.recorded(user)?;
    let live = device.alloc(5 * MIB)?;
    device.backend().set_lost(true);

    // These destructors run at the end of a process.
    drop((used, plain, event));
    device.free(live)?;
    let lost = |result: Result<(), Error>| matches!(result, Err(Error::Driver { .. }));
    assert!(lost(device.alloc(100 * MIB).map(drop)));
    assert!(lost(device.allocator().empty_cache()));
    assert!(lost(device.synchronize()));
    assert!(lost(device.memory_info().map(drop)));
    assert!(lost(device.dedicated_stream(0).map(drop)));
    assert_eq!(device.statistics().allocation.all.current, 0);
    assert_eq!(device.statistics().active.all.current, 1, "the use for which no event could be recorded");
    device.check_consistency();

    device.backend().set_lost(false);
    device.allocator().empty_cache()?;
    assert_eq!(device.reserved(), 0, "no memory was lost with the driver");
    device.check_consistency();
    Ok(())
}
