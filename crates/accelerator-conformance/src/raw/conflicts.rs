//! Work on the same bytes, on streams that the program does not order.

use accelerator_core::{Backend, MIB};

use super::bytes;
use super::rig::{Rig, Span};
use super::work::Worker;
use crate::outcome::{Failure, Outcome};

const COPIES: usize = 16;

/// One stream copies from memory that another stream fills, repeatedly and without a wait. Each copy must contain the
/// bytes of a single fill.
pub(super) fn conflicting_work<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"`serializes_conflicts` says that work on the same bytes never runs at the same time");
    let (worker, copying, filling) = (rig.worker()?, rig.stream()?, rig.stream()?);
    let len = rig.most_bytes().min(8 * MIB);
    let memory = rig.filled(len, 0, &copying)?;
    let copies = (0..COPIES).map(|_| rig.pinned(len, 0)).collect::<Result<Vec<_>, _>>()?;
    rig.asked("one stream began before the other had its work", |factor| {
        let began_together = submit(rig, &worker, factor, [&copying, &filling], memory, &copies)?;
        rig.synchronize(&copying)?;
        rig.synchronize(&filling)?;
        for (number, copy) in copies.iter().enumerate() {
            let copy = copy.bytes();
            bytes::all(copy, copy[0]).map_err(|difference| {
                format!(
                    "`serializes_conflicts` is true, but copy {number} ran while a fill changed the same bytes: \
                     {difference}"
                )
            })?;
        }
        Ok(began_together)
    })
}

/// Submits the work behind a wait for the same event. Returns whether both streams had all of it when that was reached.
fn submit<B: Backend>(
    rig: &Rig<B>,
    worker: &Worker<B>,
    factor: u32,
    [copying, filling]: [&B::Stream; 2],
    memory: Span<B::Ptr>,
    copies: &[Span<B::Ptr>],
) -> Result<bool, Failure> {
    rig.busy(worker, factor)?;
    let start = rig.recorded(&worker.stream)?;
    rig.wait(copying, &start)?;
    rig.wait(filling, &start)?;
    for (value, copy) in (1..).zip(copies) {
        rig.copy(*copy, memory, copying)?;
        rig.fill(memory, value, filling)?;
    }
    Ok(!rig.is_complete(&start)?)
}
