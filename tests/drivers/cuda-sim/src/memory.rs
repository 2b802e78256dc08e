//! Device memory of contexts, and pinned host memory.

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};

/// Allocated by `cuMemAllocAsync`, and not yet passed to `cuMemFreeAsync`.
pub(crate) const STREAM_ORDERED: u32 = 1;

impl Driver {
    pub(crate) fn allocate(&mut self, context: Handle, bytes: u64, flags: u32) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = self.context(context)?.device;
        Ok(self.engine.allocate(device, bytes, context, flags)?)
    }

    /// Frees pinned memory. The real driver waits until the device is done with it. This one reports programs that rely
    /// on that, and drops the work that still needs the memory.
    pub(crate) fn free_pinned(&mut self, address: u64) -> Outcome {
        let bytes = self.engine.host.free(address)?;
        for _ in 0..self.engine.forget_uses(address, bytes) {
            let text = format!("pinned memory at {address:#x} ({bytes} bytes) is freed while work still uses it");
            self.engine.violations.push(text);
        }
        Ok(())
    }
}
