use std::collections::HashMap;

use super::{Line, Op};

/// The size of the smallest block.
const BLOCK: u64 = 512;

/// Returns the most bytes that are allocated at once, each allocation rounded up to whole blocks of 512 bytes. No
/// device with less memory is enough, unless pools are paused.
pub fn live_at_peak(lines: &[Line]) -> u64 {
    let mut sizes = HashMap::new();
    let (mut live, mut peak) = (0_u64, 0);
    for line in lines {
        match line.op {
            Op::Alloc { id, bytes, .. } => {
                let size = bytes.saturating_add(BLOCK - 1) / BLOCK * BLOCK;
                live = live.saturating_add(size);
                sizes.insert(id, size);
            }
            Op::Free { id } => live = live.saturating_sub(sizes.remove(&id).unwrap_or(0)),
            _ => {}
        }
        peak = peak.max(live);
    }
    peak
}
