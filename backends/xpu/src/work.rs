//! Work of streams: it is submitted, or captured and put into a graph.
#![allow(unsafe_code)] // calls the driver

use std::ptr;
use std::sync::Arc;

use accelerator_core::DriverResult;
use level_zero_sys::{LevelZero, ze_command_list_handle_t, ze_group_count_t};

use crate::answer::ask;
use crate::kernel::Prepared;
use crate::memory::XpuPtr;

/// One command and its arguments.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Copy { to: XpuPtr, from: XpuPtr, len: usize },
    Fill { at: XpuPtr, value: u8, len: usize },
    Launch { kernel: Arc<Prepared>, groups: [u32; 3] },
}

impl Work {
    /// Adds the command to a list.
    ///
    /// # Safety
    /// * No other thread uses the list meanwhile.
    /// * The memory is valid for the command whenever the list executes it, and the kernel is alive until then.
    pub(crate) unsafe fn append(&self, api: &LevelZero, list: ze_command_list_handle_t) -> DriverResult<()> {
        let (unsignalled, no_waits) = (ptr::null_mut(), ptr::null_mut());
        match self {
            Self::Copy { to, from, len } => {
                let (to, from) = (to.native(), from.native());
                // SAFETY: The caller promises two valid ranges.
                unsafe { ask!(api, zeCommandListAppendMemoryCopy(list, to, from, *len, unsignalled, 0, no_waits)) }
            }
            Self::Fill { at, value, len } => {
                let (at, value) = (at.native(), ptr::from_ref(value).cast());
                // SAFETY: The caller promises a valid range; the call itself reads the one-byte pattern.
                unsafe { ask!(api, zeCommandListAppendMemoryFill(list, at, value, 1, *len, unsignalled, 0, no_waits)) }
            }
            Self::Launch { kernel, groups: [across, down, deep] } => {
                let groups = ze_group_count_t { groupCountX: *across, groupCountY: *down, groupCountZ: *deep };
                let kernel = kernel.raw;
                // SAFETY: The caller promises valid memory; the arguments have been set.
                unsafe { ask!(api, zeCommandListAppendLaunchKernel(list, kernel, &groups, unsignalled, 0, no_waits)) }
            }
        }
    }
}
