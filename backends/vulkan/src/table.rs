//! Every byte value four times, for the ends of fills.
#![allow(unsafe_code)] // memory of the driver

use std::sync::Arc;

use accelerator_core::DriverResult;
use ash::vk;

use crate::memory::{Allocation, Memory};

const COPIES: u64 = 4;

/// A buffer with four copies of each byte value.
#[derive(Debug)]
pub(crate) struct Table {
    made: Allocation,
}

impl Table {
    pub(crate) fn new(memory: &Arc<Memory>) -> DriverResult<Self> {
        let (made, start) = memory.pinned(256 * COPIES)?;
        for value in 0..=u8::MAX {
            // SAFETY: The place is inside the buffer.
            let place = unsafe { start.add(usize::from(value) * COPIES as usize) };
            // SAFETY: As above, and nobody else uses the buffer.
            unsafe { place.write_bytes(value, COPIES as usize) };
        }
        Ok(Self { made })
    }

    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.made.buffer
    }

    /// Returns the offset of the copies of a value.
    pub(crate) fn place(&self, value: u8) -> u64 {
        u64::from(value) * COPIES
    }
}
