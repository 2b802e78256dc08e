//! Kernels that nobody orders, on the host. Each has `&mut` to its bytes, so no two may ever have the same ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use accelerator_core::{Buffer, Error, Stream};
use accelerator_host::{Host, launch};

use super::program::{Op, Program, chosen};

/// The elements between two that a kernel writes: there is one in each page of the system.
const STEP: usize = 512;

/// Runs the steps that allocate, free, order and use memory. Streams use it without waiting for one another.
pub(crate) fn run(program: &Program) {
    let (device, streams) = program.open(Host::new(0, program.memory));
    let (mut buffers, changed): (Vec<Buffer<Host>>, _) = (Vec::new(), Arc::new(AtomicU64::new(0)));
    for (number, op) in (1..).zip(&program.ops) {
        let nth = |nth: &usize| chosen(*nth, buffers.len());
        match op {
            Op::Allocate { bytes, stream } => match device.allocate(bytes.next_multiple_of(8), streams[*stream]) {
                Ok(buffer) => buffers.push(buffer),
                Err(Error::OutOfMemory(_)) => {}
                Err(error) => panic!("{error}"),
            },
            Op::Free { nth: chosen, .. } => {
                nth(chosen).into_iter().for_each(|nth| drop(buffers.swap_remove(nth)));
            }
            Op::Write { nth: chosen, stream, .. } | Op::Touch { nth: chosen, stream } => {
                nth(chosen).into_iter().for_each(|nth| kernel(&mut buffers[nth], streams[*stream], number, &changed));
            }
            Op::Order { earlier, later } => streams[*later].wait_stream(streams[*earlier]).unwrap(),
            Op::Synchronize(stream) => streams[*stream].synchronize().unwrap(),
            Op::EmptyCache => device.allocator().empty_cache().unwrap(),
            _ => {}
        }
    }
    buffers.clear();
    device.synchronize().unwrap();
    device.allocator().empty_cache().unwrap();
    assert_eq!(changed.load(Ordering::Relaxed), 0, "elements changed under a kernel that had them as `&mut`");
}

/// Writes a number of its own, waits a moment, and counts the elements that have changed.
fn kernel(buffer: &mut Buffer<Host>, stream: Stream<Host>, number: u64, changed: &Arc<AtomicU64>) {
    let changed = Arc::clone(changed);
    let launched = launch(stream, buffer.slice_mut::<u64>().unwrap(), move |elements| {
        elements.iter_mut().step_by(STEP).for_each(|element| *element = number);
        sleep(Duration::from_micros(20));
        let elements = std::hint::black_box(elements);
        let different = elements.iter().step_by(STEP).filter(|element| **element != number).count();
        changed.fetch_add(different as u64, Ordering::Relaxed);
    });
    launched.unwrap();
}
