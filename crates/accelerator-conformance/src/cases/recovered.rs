//! What must hold after a case in which driver calls failed, once calls succeed again.
//!
//! The case itself may have failed anywhere, and may have dropped allocations without freeing them. So memory may be in
//! use, but everything that is in use is known, all else goes back to the driver, and the device works.

use std::thread;
use std::time::{Duration, Instant};

use accelerator_core::{BlockSnapshot, BlockState, MIB, SegmentSnapshot};

use super::consistency::check_consistency;
use super::context::{Context, Device, holds};
use crate::controls::Controls;
use crate::outcome::{Outcome, caught};
use crate::progress::limit;
use crate::suite::Capability;

impl Context {
    /// Checks the devices of the case, and gives everything back to the driver.
    #[allow(unsafe_code)] // `Faulty::reclaim`
    pub(crate) fn recover(&self) -> Outcome {
        let mut outcome = Ok(());
        let made = std::mem::take(&mut *self.made());
        for device in made {
            outcome = outcome.and(caught(|| recovered(device, self.offers(Capability::Bytes))));
            // SAFETY: The case is over, its buffers have been dropped, and the device is not used again.
            unsafe { device.backend().reclaim() };
        }
        outcome.and(caught(|| self.opens_another()))
    }

    /// Checks that the driver gives memory to another device, which works.
    #[allow(unsafe_code)] // `Faulty::reclaim`
    fn opens_another(&self) -> Outcome {
        let device = self.device()?;
        works(device, self.offers(Capability::Bytes))?;
        // SAFETY: Nothing of the device is in use, and it is not used again.
        unsafe { device.backend().reclaim() };
        Ok(())
    }
}

fn recovered(device: Device, has_bytes: bool) -> Outcome {
    let (backend, allocator) = (device.backend(), device.allocator());
    backend.clear_failures();
    backend.release_all();
    let _ = device.synchronize(); // tells of work that failed late
    device.synchronize()?;
    device.host_allocator().empty_cache()?;
    let start = Instant::now();
    loop {
        allocator.empty_cache()?;
        let Some(segment) = unused(device) else { break };
        // It takes a moment until it is known that another process has ended.
        if start.elapsed() > limit() {
            return Err(format!("a segment that nobody uses is kept: {segment:?}").into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    #[cfg(debug_assertions)]
    allocator.check();
    check_consistency(device);
    let misuses = backend.misuses();
    if misuses > 0 {
        return Err(format!("{misuses} driver calls used memory that was not live, or was still in use").into());
    }
    backend.set_capacity(u64::MAX);
    allocator.set_memory_fraction(1.0)?;
    works(device, has_bytes)?;
    check_consistency(device);
    Ok(())
}

/// Returns a segment outside of private pools that has no block in use.
fn unused(device: Device) -> Option<SegmentSnapshot> {
    let in_use = |block: &BlockSnapshot| matches!(block.state, BlockState::Allocated | BlockState::Aliased);
    let mut segments = device.allocator().snapshot().segments.into_iter();
    segments.find(|segment| segment.mem_pool.is_default() && !segment.blocks.iter().any(in_use))
}

/// Checks that the device gives out memory, and that work on it is done.
fn works(device: Device, has_bytes: bool) -> Outcome {
    let stream = device.default_stream();
    let mut buffer = device.buffer(3 * MIB, stream)?;
    if has_bytes {
        buffer.fill(7, stream)?;
        holds(&buffer, 7, stream, "the device works after the failures")?;
    }
    Ok(())
}
