//! Calls through the facade, on the host. The cache is warm, and nothing waits.

use std::hint::black_box;
use std::sync::mpsc;

use accelerator::host::{self, Host};
use accelerator::{
    Buffer, DeviceIndexGuard, Event, Result, Stream, StreamGuard, current_stream, memory, set_accelerator,
};

/// Repeats a call the given number of times.
type Repeated = fn(u64) -> Result<()>;

/// The calls with their names.
pub(crate) const CALLS: [(&str, Repeated); 7] = [
    ("buffer-512B", |times| repeat(times, || Buffer::allocate(black_box(512), None))),
    ("buffer-4MiB", |times| repeat(times, || Buffer::allocate(black_box(4 << 20), None))),
    ("device-guard", |times| repeat(times, || DeviceIndexGuard::new(black_box(Some(0))))),
    ("stream-guard", stream_guard),
    ("current-stream", |times| repeat(times, || current_stream(None))),
    ("event-record-query", event),
    ("memory_stats", memory_stats),
];

pub(crate) fn perform(call: Repeated, times: u64) -> super::Result<()> {
    set_accelerator("host")?;
    drop(Buffer::allocate(1, None)?); // opens the device, as programs do
    Ok(call(times)?)
}

fn stream_guard(times: u64) -> Result<()> {
    let stream = Stream::new(None)?;
    repeat(times, || StreamGuard::new(black_box(&stream)))
}

/// Records events after work that is still running, so that the stream's thread need not be woken. The cost of that
/// would depend on the scheduler.
fn event(times: u64) -> Result<()> {
    let (stream, event) = (Stream::new(None)?, Event::new());
    let mut buffer = Buffer::allocate_on(1, &stream)?;
    let (over, waits) = mpsc::channel::<()>();
    let bytes = buffer.typed_mut::<Host>()?.slice_mut::<u8>()?;
    host::launch(stream.typed()?, bytes, move |_| _ = waits.recv())?;
    repeat(times, || event.record(Some(&stream)).and_then(|()| event.query()))?;
    drop(over);
    stream.synchronize()
}

fn memory_stats(times: u64) -> Result<()> {
    let _used = Buffer::allocate(1, None)?; // otherwise there are no statistics
    repeat(times, || memory::memory_stats(None))
}

fn repeat<T>(times: u64, call: impl Fn() -> Result<T>) -> Result<()> {
    let call = || call().map(|made| _ = black_box(&made));
    for _ in 0..100 {
        call()?; // fills the cache
    }
    counted(times, &call)
}

/// Runs the counted calls and nothing else. Its name is passed to callgrind.
#[inline(never)]
fn counted(times: u64, call: &dyn Fn() -> Result<()>) -> Result<()> {
    for _ in 0..times {
        call()?;
    }
    Ok(())
}
