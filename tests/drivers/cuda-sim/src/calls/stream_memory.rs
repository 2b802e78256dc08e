//! Memory that is allocated and freed in the order of a stream.

use crate::code::{Code, Outcome};
use crate::gate::{Out, exports, required};
use crate::scheduler::Position;
use crate::state::{Handle, Session};
use crate::work::Work;

exports! {
    /// Memory of the stream's device. Other streams may touch it at once, which the real driver does not
    /// permit.
    fn cuMemAllocAsync(address: Out<'_, u64>, bytes: usize, stream: Handle) [Context] => safe allocate;
    /// Frees such memory in its turn.
    fn cuMemFreeAsync(address: u64, stream: Handle) [Context] => safe free;
}

fn allocate(driver: &mut Session, address: Out<'_, u64>, bytes: usize, stream: Handle) -> Outcome {
    let address = required(address)?;
    let stream = uncaptured(driver, stream)?;
    let context = driver.streams[&stream].context;
    let mut allocated = driver.allocate(context, bytes as u64, true);
    if allocated == Err(Code::OUT_OF_MEMORY) {
        // Memory whose turn to be freed has not come is waited for.
        let frees = pending_frees(driver);
        driver.wait(&frees);
        allocated = driver.allocate(context, bytes as u64, true);
    }
    address.write(allocated?);
    Ok(())
}

fn free(driver: &mut Session, address: u64, stream: Handle) -> Outcome {
    let stream = uncaptured(driver, stream)?;
    let allocation = driver.memory.allocation(address)?;
    if !std::mem::replace(&mut allocation.stream_ordered, false) {
        return Err(Code::INVALID_VALUE);
    }
    driver.submit(stream, Work::Free(address), None).map(drop)
}

/// Graphs that allocate are not simulated.
fn uncaptured(driver: &mut Session, stream: Handle) -> Outcome<Handle> {
    let stream = driver.stream(stream)?;
    if driver.streams[&stream].captured.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(stream) }
}

fn pending_frees(driver: &Session) -> Vec<Position> {
    let mut frees = Vec::new();
    for (stream, state) in &driver.streams {
        let queued = state.queue.iter().filter(|operation| matches!(operation.work, Work::Free(_)));
        frees.extend(queued.map(|operation| Position { stream: *stream, number: operation.number }));
    }
    frees
}
