//! Checks of the caches at the end of a trial.

use accelerator_core::{Accelerator, Backend, Statistics};
use libtest_mimic::Failed;

/// Empties the caches. The device must then hold nothing.
pub(crate) fn give_back<B: Backend>(device: &'static Accelerator<B>) -> Result<(), Failed> {
    device.synchronize()?;
    device.allocator().empty_cache()?;
    device.host_allocator().empty_cache()?;
    let Statistics { allocation, active, segment, reserved_bytes, num_device_alloc, num_device_free, .. } =
        device.allocator().statistics();
    let left = [allocation, active, segment, reserved_bytes].map(|stat| stat.all.current);
    assert_eq!(left, [0; 4]);
    // Pages of a private pool may be mapped at once and go back in parts, each with a call of its own.
    if device.allocator().reserved_by_private_pools().is_empty() {
        assert_eq!(num_device_alloc, num_device_free);
    }
    Ok(())
}
