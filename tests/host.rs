//! The host backend beyond conformance: kernels, and memory freed while they run.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[cfg(target_os = "linux")]
#[path = "host/compact.rs"]
mod compact;
#[cfg(target_os = "linux")]
#[path = "host/compact_pools.rs"]
mod compact_pools;
#[path = "host/events.rs"]
mod events;
#[path = "host/graphs.rs"]
mod graphs;
#[path = "host/pinned.rs"]
mod pinned;
#[cfg(target_os = "linux")]
#[path = "host/pool_names.rs"]
mod pool_names;
#[cfg(target_os = "linux")]
#[path = "host/sleep.rs"]
mod sleep;
#[cfg(target_os = "linux")]
#[path = "programs/sleep.rs"]
mod sleep_cycles;
#[cfg(target_os = "linux")]
#[path = "host/virtual_memory.rs"]
mod virtual_memory;

use std::sync::mpsc;

use accelerator_core::{Accelerator, AllocatorConfig, Error, GIB, MIB};
use accelerator_host::{Host, Touched, launch};

fn host() -> &'static Accelerator<Host> {
    Accelerator::new(Host::new(0, 64 * GIB), 0, AllocatorConfig::default()).unwrap()
}

#[test]
fn kernels_see_the_bytes_and_run_in_order() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(4000, stream).unwrap();
    let mut y = host.allocate(4000, stream).unwrap();
    x.slice_mut::<f32>().unwrap().write(&[1.5; 1000], stream).unwrap();
    for _ in 0..10 {
        launch(stream, (x.slice::<f32>().unwrap(), y.slice_mut::<f32>().unwrap()), |(x, y)| {
            x.iter().zip(y).for_each(|(x, y)| *y += x);
        })
        .unwrap();
    }
    assert_eq!(y.slice::<f32>().unwrap().to_vec(stream).unwrap(), [15.0; 1000]);
}

#[test]
fn a_panicking_kernel_fails_the_next_synchronize_and_no_other() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(8, stream).unwrap();
    launch(stream, x.slice_mut::<u8>().unwrap(), |x| assert!(x.is_empty(), "this panic is part of the test")).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("a kernel panicked"), "{error}");
    stream.synchronize().unwrap();
    launch(stream, x.slice_mut::<u8>().unwrap(), |x| x.fill(7)).unwrap();
    assert_eq!(x.slice::<u8>().unwrap().to_vec(stream).unwrap(), [7; 8]);
}

#[test]
fn memory_given_back_under_a_running_kernel_stays_until_it_is_done() {
    let host = host();
    let stream = host.default_stream();
    let mut x = host.allocate(32 * MIB, stream).unwrap();
    x.fill(3, stream).unwrap();
    stream.synchronize().unwrap();
    let (go, wait) = mpsc::channel();
    let (tell, sum) = mpsc::channel();
    launch(stream, x.slice::<u8>().unwrap(), move |x| {
        wait.recv().unwrap();
        tell.send(x.iter().map(|x| u64::from(*x)).sum::<u64>()).unwrap();
    })
    .unwrap();
    drop(x);
    host.allocator().empty_cache().unwrap();
    assert_eq!(host.allocator().statistics().reserved_bytes.all.current, 0);
    go.send(()).unwrap();
    assert_eq!(sum.recv().unwrap(), 3 * 32 * MIB);
}

#[test]
fn memory_used_on_another_stream_is_not_reused_before() {
    let host = host();
    let (default, side) = (host.default_stream(), host.stream(0).unwrap());
    let x = host.allocate(1000, default).unwrap();
    let at = x.ptr();
    let (go, wait) = mpsc::channel();
    launch(side, x.slice::<u8>().unwrap(), move |_| wait.recv().unwrap()).unwrap();
    drop(x);
    assert_ne!(host.allocate(1000, default).unwrap().ptr(), at);
    go.send(()).unwrap();
    side.synchronize().unwrap();
    assert_eq!(host.allocate(1000, default).unwrap().ptr(), at);
}

#[test]
fn kernels_on_the_same_bytes_never_overlap_even_where_nobody_ordered_them() {
    let host = host();
    let streams = [0; 4].map(|priority| host.stream(priority).unwrap());
    let mut counters = host.allocate(64, streams[0]).unwrap();
    counters.fill(0, streams[0]).unwrap();
    host.synchronize().unwrap();
    for _ in 0..500 {
        for stream in streams {
            launch(stream, counters.slice_mut::<u64>().unwrap(), |counters| {
                counters.iter_mut().for_each(|counter| *counter += 1);
            })
            .unwrap();
        }
    }
    host.synchronize().unwrap();
    assert_eq!(counters.slice::<u64>().unwrap().to_vec(streams[0]).unwrap(), [2000; 8]);
}

#[test]
fn a_large_reservation_costs_nothing() {
    let host = host();
    let stream = host.default_stream();
    let mut large = host.allocate(20 * GIB, stream).unwrap();
    let mut byte = [9];
    large.read(20 * GIB - 1, &mut byte, stream).unwrap();
    assert_eq!(byte, [0]);
    large.write(20 * GIB - 1, &[5], stream).unwrap();
    large.read(20 * GIB - 1, &mut byte, stream).unwrap();
    assert_eq!(byte, [5]);
    assert_eq!(host.memory_info().unwrap().free, 44 * GIB);
}

#[test]
fn refused_arguments_change_nothing() {
    let (one, other) = (host(), host());
    let stream = one.default_stream();
    let mut x = one.allocate(10, stream).unwrap();
    let refused = launch(other.default_stream(), x.slice::<u8>().unwrap(), |_| unreachable!("it was refused"));
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })));
    assert!(matches!(x.slice::<u32>(), Err(Error::ElementSize { size: 10, element: 4 })));
    assert!(matches!(x.write(8, &[1, 2, 3], stream), Err(Error::OutOfBounds { offset: 8, len: 3, size: 10 })));
    assert!(matches!(x.read(u64::MAX, &mut [0], stream), Err(Error::OutOfBounds { .. })));
    other.synchronize().unwrap();
    assert_eq!(x.slice::<u8>().unwrap().to_vec(stream).unwrap(), [0; 10]);
}

#[test]
fn an_empty_buffer_can_be_given_to_a_kernel() {
    let host = host();
    let stream = host.default_stream();
    let mut empty = host.allocate(0, stream).unwrap();
    let (tell, told) = mpsc::channel();
    launch(stream, (empty.slice_mut::<f64>().unwrap(),), move |(empty,)| tell.send(empty.len()).unwrap()).unwrap();
    assert_eq!(told.recv().unwrap(), 0);
}

#[test]
fn an_empty_buffer_can_be_given_to_a_kernel_beside_mapped_memory() {
    let host = host();
    host.allocator().set_config(host.allocator().config().updated("expandable_segments:True").unwrap());
    let stream = host.default_stream();
    let _mapped = host.allocate(100, stream).unwrap();
    let empty = host.allocate(0, stream).unwrap();
    launch(stream, (empty.slice::<f64>().unwrap(),), |_| ()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_kernel_may_touch_everything_from_an_address_on() {
    let host = host();
    let stream = host.default_stream();
    let x = host.allocate(8, stream).unwrap();
    let touched = Touched::new(x.ptr().unwrap(), usize::MAX, true);
    host.backend().run(stream.native(), &[touched], || ()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_kernel_needs_no_memory() {
    let host = host();
    let stream = host.default_stream();
    let (tell, told) = mpsc::channel();
    launch(stream, (), move |()| tell.send(7).unwrap()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(told.try_recv(), Ok(7));
}
