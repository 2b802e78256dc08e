//! Memory allocated and freed in stream order.

use sim_engine::Work;
use sim_engine::out::Out;

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::memory::STREAM_ORDERED;
use crate::state::{Handle, Session};

exports! {
    /// Allocates memory of the stream's device. Other streams may use it immediately, which the real driver does not
    /// permit.
    fn cuMemAllocAsync(address: Out<'_, u64>, bytes: usize, stream: Handle) [Context] => safe allocate;
    /// Frees stream-ordered memory in stream order.
    fn cuMemFreeAsync(address: u64, stream: Handle) [Context] => safe free;
}

fn allocate(driver: &mut Session, address: Out<'_, u64>, bytes: usize, stream: Handle) -> Outcome {
    let address = required(address)?;
    let stream = uncaptured(driver, stream)?;
    let context = driver.state_of(stream)?.context;
    let mut allocated = driver.allocate(context, bytes as u64, STREAM_ORDERED);
    if allocated == Err(Code::OUT_OF_MEMORY) {
        // Waits for memory whose free is still queued.
        let frees = driver.engine.pending(|operation| matches!(operation.work, Work::Free(_)));
        driver.wait(&frees);
        allocated = driver.allocate(context, bytes as u64, STREAM_ORDERED);
    }
    address.write(allocated?);
    Ok(())
}

fn free(driver: &mut Session, address: u64, stream: Handle) -> Outcome {
    let stream = uncaptured(driver, stream)?;
    let allocation = required(driver.engine.memory.at_mut(address))?;
    if std::mem::take(&mut allocation.flags) != STREAM_ORDERED {
        return Err(Code::INVALID_VALUE);
    }
    driver.submit(stream, Work::Free(address)).map(drop)
}

/// Fails for a captured stream. Graphs that allocate are not simulated.
fn uncaptured(driver: &mut Session, stream: Handle) -> Outcome<Handle> {
    let stream = driver.stream(stream)?;
    if driver.state_of(stream)?.captured.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(stream) }
}
