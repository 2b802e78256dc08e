//! D, a failure at each driver call: case 54.

use accelerator_core::{Allocation, DriverErrorKind, MIB, Stream};

use super::consistency::check_accumulated;
use super::context::{Device, Driver};
use super::{Case, Context, Outcome};
use crate::calls::Call;
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let case = Case::new(54, "failure_at_every_driver_call", failure_at_every_driver_call).of_any_policy();
    vec![case.needs(&[Capability::Execution])]
}

const SETTINGS: [&str; 5] =
    ["", "max_split_size_mb:20", "device_side_reuse:True", "caching:False", "expandable_segments:True"];
const KINDS: [DriverErrorKind; 2] = [DriverErrorKind::Other, DriverErrorKind::OutOfMemory];
const MEMORY: u64 = 64 * MIB;
const HOST_MEMORY: u64 = 8 * MIB;

fn failure_at_every_driver_call(context: &Context) -> Outcome {
    for settings in SETTINGS {
        // Use a fresh device for each of these calls, since they are made only at the start.
        for call in [Call::Stream, Call::Event] {
            let device = context.device_with(MEMORY, settings)?;
            device.backend().fail_next(call, DriverErrorKind::Other);
            let injected = workload(device, &mut Vec::new())?;
            assert_eq!(injected, 1, "`{}` must be called once under `{settings}`", call.name());
        }
        let device = context.device_with(MEMORY, settings)?;
        let mut streams = Vec::new();
        assert_eq!(workload(device, &mut streams)?, 0, "no failure may be injected here");
        for kind in KINDS {
            let mut n = 1;
            loop {
                device.backend().fail_call(n, kind);
                if workload(device, &mut streams)? == 0 {
                    break;
                }
                n += 1;
            }
            assert!(n > 10, "the workload makes too few driver calls: {n}");
        }
    }
    Ok(())
}

/// Allocates and frees on three streams until memory runs out, then cleans up. Whatever failed in between, no memory
/// may be lost, the statistics must be right and the device must be usable. Returns how many calls were made to fail.
fn workload(device: Device, streams: &mut Streams) -> Result<u64, Failure> {
    let injected_before = device.backend().injected();
    while streams.len() < 2
        && let Ok(stream) = device.side_stream()
    {
        streams.push(stream);
    }
    let mut work = Work { device, live: Vec::new() };
    work.run(streams);
    work.run_pinned(streams);
    let Work { live, .. } = work;
    let injected = device.backend().injected() - injected_before;
    device.backend().clear_failures();
    device.free_all(live)?;
    device.backend().release_all();
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?;
    device.check_consistency();
    let host = device.host_statistics();
    assert_eq!((host.active_requests.current, host.active_bytes.current), (0, 0));
    assert_eq!(device.backend().live_host_allocations(), 0, "everything is returned to the driver");
    check_accumulated(device);
    let statistics = device.statistics();
    assert_eq!(statistics.active.all.current, 0);
    assert_eq!(
        (device.reserved(), device.backend().live_allocations()),
        (0, 0),
        "everything is returned to the driver"
    );
    device.check_reservations();
    // Request exactly the half of the device that is allowed, so that a charge left over from a failed request shows.
    device.allocator().set_memory_fraction(0.5)?;
    let usable = device.alloc(MEMORY / 2)?;
    device.free(usable)?;
    device.allocator().set_memory_fraction(1.0)?;
    device.allocator().empty_cache()?;
    Ok(injected)
}

/// Two streams besides the default one, made by the first workload that can make them.
type Streams = Vec<Stream<Driver>>;

struct Work {
    device: Device,
    live: Vec<Allocation<Driver>>,
}

impl Work {
    /// Errors are expected; only the state that they leave matters.
    fn run(&mut self, streams: &Streams) {
        let device = self.device;
        let own = device.default_stream();
        let user = streams.first().copied().unwrap_or(own);
        let slow = streams.get(1).copied().unwrap_or(own);
        device.hold(slow);
        for bytes in [100, 600 << 10, 600 << 10, MIB, 3 * MIB, 15 * MIB] {
            self.alloc(bytes, own);
        }
        self.use_and_free(0, user);
        self.use_and_free(0, slow);
        self.alloc(2 * MIB, user);
        self.use_and_free(1, user);
        self.alloc(600 << 10, own);
        let _ = user.synchronize();
        self.alloc(9 * MIB, own);
        // Memory is short here: the allocator waits for events and releases the cache.
        self.alloc(25 * MIB, slow);
        self.use_and_free(0, user);
        self.free(0);
        self.alloc(25 * MIB, own);
        self.alloc(MEMORY, own);
        let _ = device.allocator().empty_cache();
        let _ = device.memory_info();
        let _ = device.allocator().largest_available();
        let _ = user.is_idle();
        if let Ok(event) = device.recorded(user) {
            let _ = event.wait(own);
            let _ = event.is_complete();
            let _ = event.synchronize();
        }
        self.alloc(MIB, slow);
        let _ = device.synchronize();
        device.check_consistency();
    }

    /// Uses pinned host memory, with and without copies, until there is no more.
    fn run_pinned(&mut self, streams: &Streams) {
        let device = self.device;
        let own = device.default_stream();
        let (user, slow) = (streams.first().copied().unwrap_or(own), streams.get(1).copied().unwrap_or(own));
        device.backend().set_host_capacity(HOST_MEMORY);
        let mut pinned: Vec<_> =
            [100, 3_000, 3_000, MIB].into_iter().filter_map(|bytes| device.allocate_host(bytes).ok()).collect();
        device.check_consistency();
        if let (Ok(mut buffer), Some(first)) = (device.buffer(1_000, own), pinned.last_mut()) {
            let _ = buffer.copy_from_pinned(0, first, 0..50, slow);
            let _ = buffer.copy_to_pinned(0..50, first, 10, user);
            let _ = buffer.copy_from_pinned(0, first, 0..50, user);
            let _ = first.bytes();
            let _ = first.bytes_mut();
            let _ = buffer.copy_to_pinned(0..50, first, 10, slow);
        }
        for pinned in &pinned {
            let _ = pinned.record_use(user);
            let _ = pinned.record_use(slow);
        }
        drop(pinned);
        device.check_consistency();
        for bytes in [3_000, MIB, HOST_MEMORY / 2, HOST_MEMORY / 2, HOST_MEMORY] {
            let _ = device.allocate_host(bytes);
            device.check_consistency();
        }
        let _ = device.host_allocator().empty_cache();
        let _ = device.synchronize();
        device.check_consistency();
    }

    fn alloc(&mut self, bytes: u64, stream: Stream<Driver>) {
        self.live.extend(self.device.alloc_on(bytes, stream));
        self.device.check_consistency();
    }

    fn use_and_free(&mut self, place: usize, user: Stream<Driver>) {
        if let Some(allocation) = self.live.get(place) {
            let _ = self.device.allocator().record_use(allocation, user);
        }
        self.free(place);
    }

    fn free(&mut self, place: usize) {
        if place < self.live.len() {
            let freed = self.device.free(self.live.remove(place));
            assert!(freed.is_ok(), "a free must not fail: {freed:?}");
            self.device.check_consistency();
        }
    }
}
