//! The policy `compact` with real bytes. Memory is visible at several addresses, and each owner finds what was written
//! there.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use accelerator_conformance::{Controls, Faulty};
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Buffer, Error, MIB, Stream};
use accelerator_host::{Host, launch};
use fastrand::Rng;

/// Small enough that memory must be aliased, and runs out occasionally.
const CAPACITY: u64 = 160 * MIB;

/// Returns a multiple of 512. There are few different sizes, so requests repeat.
fn bytes(random: &mut Rng) -> u64 {
    match random.u8(..4) {
        0 => 512 * random.u64(1..=100),
        1 => MIB + 512 * random.u64(..2048),
        2 => [3, 7, 11, 20][random.usize(..4)] * MIB,
        _ => [13, 24, 33, 45][random.usize(..4)] * MIB,
    }
}

fn take<T>(random: &mut Rng, from: &mut Vec<T>) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(random.usize(..from.len())))
}

fn device<B: Backend>(backend: B) -> &'static Accelerator<B> {
    let config = AllocatorConfig::default().updated("policy:compact").unwrap();
    Accelerator::new(backend, 0, config).unwrap()
}

/// Allocates. When out of memory, frees half of the buffers first.
fn allocate<B: Backend, T>(
    device: &'static Accelerator<B>,
    bytes: u64,
    stream: Stream<B>,
    held: &mut Vec<T>,
) -> Option<Buffer<B>> {
    match device.allocate(bytes, stream) {
        Ok(buffer) => Some(buffer),
        Err(error) => {
            assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
            held.truncate(held.len() / 2);
            None
        }
    }
}

fn shows_twice<B: Backend>(device: &Accelerator<B>) -> u64 {
    u64::from(!device.allocator().snapshot().aliases.is_empty())
}

/// A buffer stamped with its owner: one word in every 512 bytes, the smallest block size.
struct Stamped {
    buffer: Buffer<Host>,
    stamp: u64,
}

impl Stamped {
    fn new(mut buffer: Buffer<Host>, stamp: u64) -> Self {
        launch(buffer.stream(), buffer.slice_mut::<u64>().unwrap(), move |words| {
            words.iter_mut().enumerate().step_by(64).for_each(|(place, word)| *word = stamp ^ place as u64);
        })
        .unwrap();
        Self { buffer, stamp }
    }

    /// Checks the stamps on this stream, after the kernel that wrote them.
    fn check(&self, stream: Stream<Host>, wrong: &Arc<AtomicU64>) {
        let (stamp, wrong) = (self.stamp, Arc::clone(wrong));
        stream.wait_stream(self.buffer.stream()).unwrap();
        launch(stream, self.buffer.slice::<u64>().unwrap(), move |words| {
            let mut words = words.iter().enumerate().step_by(64);
            if words.any(|(place, word)| *word != stamp ^ place as u64) {
                wrong.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
    }
}

/// Kernels run on their streams' threads, and only the allocator waits for them.
#[test]
fn compact_memory_keeps_what_was_written_under_kernels() {
    let host = device(Host::new(0, CAPACITY));
    let streams = [host.default_stream(), host.stream(0).unwrap(), host.stream(0).unwrap()];
    let wrong = Arc::new(AtomicU64::new(0));
    let (mut random, mut held, mut twice) = (Rng::with_seed(1), Vec::<Stamped>::new(), 0);
    for stamp in 0..1000 {
        let stream = streams[[0, 0, 1, 2][random.usize(..4)]];
        match random.u64(..20) {
            0..9 => {
                let buffer = allocate(host, bytes(&mut random), stream, &mut held);
                held.extend(buffer.map(|buffer| Stamped::new(buffer, stamp << 32)));
            }
            9..16 => {
                // Freed immediately, after the kernel that reads it.
                let freed = take(&mut random, &mut held);
                freed.iter().for_each(|stamped| stamped.check(stamped.buffer.stream(), &wrong));
            }
            16..19 => {
                let used = take(&mut random, &mut held);
                used.iter().for_each(|stamped| stamped.check(stream, &wrong));
                held.extend(used.filter(|_| stamp % 3 > 0));
            }
            _ if stamp % 4 == 0 => host.allocator().empty_cache().unwrap(),
            _ => host.allocator().set_config(
                host.allocator()
                    .config()
                    .updated(["policy:compact", "policy:pytorch"][usize::from(stamp % 8 == 1)])
                    .unwrap(),
            ),
        }
        twice += shows_twice(host);
        assert_eq!(wrong.load(Ordering::SeqCst), 0, "after step {stamp}");
    }
    held.iter().for_each(|stamped| stamped.check(streams[0], &wrong));
    host.synchronize().unwrap();
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
    assert!(twice > 40, "only {twice} steps left blocks in alias ranges");
    drop(held);
    host.allocator().empty_cache().unwrap();
    assert_eq!(host.memory_info().unwrap().free, CAPACITY);
}

/// Work on a held stream really runs later. If its memory had been given to another stream before, that would show.
#[test]
fn compact_memory_is_given_to_no_other_stream_before_late_work_is_done() {
    let host = device(Faulty::new(Host::new(0, CAPACITY)));
    let streams = [host.default_stream(), host.stream(0).unwrap(), host.stream(0).unwrap()];
    let mut is_held = [false; 3];
    let (mut random, mut twice, mut read) = (Rng::with_seed(2), 0, 0);
    let mut held: Vec<(Buffer<_>, usize, u8)> = Vec::new();
    for step in 0..1000_u64 {
        let number = [0, 0, 1, 2][random.usize(..4)];
        match random.u64(..20) {
            0..9 => {
                if let Some(mut buffer) = allocate(host, bytes(&mut random), streams[number], &mut held) {
                    let value = step as u8;
                    buffer.fill(value, streams[number]).unwrap();
                    held.push((buffer, number, value));
                }
            }
            9..16 => {
                let Some((buffer, number, value)) = take(&mut random, &mut held) else { continue };
                // Reading would make the late work run.
                if !is_held[number] {
                    let mut bytes = vec![0; buffer.len() as usize];
                    buffer.read(0, &mut bytes, streams[number]).unwrap();
                    assert!(bytes == vec![value; bytes.len()], "other bytes in step {step}: {buffer:?}");
                    read += 1;
                }
            }
            16 => {
                let user = streams[random.usize(..3)];
                held.first().into_iter().for_each(|(buffer, ..)| buffer.record_use(user).unwrap());
            }
            17 | 18 => {
                is_held[number] = !is_held[number];
                match is_held[number] {
                    true => host.backend().hold(streams[number].native()),
                    false => host.backend().release(streams[number].native()),
                }
            }
            _ if step % 8 == 0 => host.allocator().empty_cache().unwrap(),
            _ => {}
        }
        twice += shows_twice(host);
    }
    host.backend().release_all();
    drop(held);
    host.allocator().empty_cache().unwrap();
    assert!(twice > 40 && read > 100, "only {twice} steps with alias ranges, {read} buffers read");
    assert_eq!((host.backend().misuses(), host.backend().used()), (0, 0));
    assert_eq!((host.backend().live_allocations(), host.backend().live_reservations()), (0, 0));
}

/// A kernel still uses a dropped buffer mutably when its bytes become part of another buffer, at another address and on
/// another stream. The program forgot to make that stream wait.
#[test]
fn two_kernels_never_have_the_same_bytes_at_two_addresses() {
    let host = device(Host::new(0, 320 * MIB));
    let (stream, careless) = (host.default_stream(), host.stream(0).unwrap());
    let mut parts: Vec<_> = (0..10).map(|_| host.allocate(32 * MIB, stream).unwrap()).collect();
    let (changed, running) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(2)));
    let (counted, started) = (Arc::clone(&changed), Arc::clone(&running));
    launch(stream, parts[0].slice_mut::<u64>().unwrap(), move |words| {
        words.fill(1);
        started.wait();
        thread::sleep(Duration::from_millis(200)); // as long as the other kernel runs, if nothing holds it
        let changed = black_box(words).iter().filter(|word| **word != 1).count();
        counted.store(changed as u64, Ordering::SeqCst);
    })
    .unwrap();
    let _kept: Vec<_> = parts.drain(..).skip(1).step_by(2).collect();
    running.wait();
    let mut long = host.allocate(128 * MIB, stream).unwrap();
    assert_eq!(shows_twice(host), 1);
    launch(careless, long.slice_mut::<u64>().unwrap(), |words| words.fill(2)).unwrap();
    host.synchronize().unwrap();
    assert_eq!(changed.load(Ordering::SeqCst), 0, "words changed under a kernel with mutable access");
}
