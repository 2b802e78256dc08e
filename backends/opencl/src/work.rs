//! Work of streams: it is submitted, or captured and put into a graph.
#![allow(unsafe_code)] // calls into the driver

use std::ptr;
use std::sync::Arc;

use accelerator_core::DriverResult;
use cl3::command_queue;
use cl3::types::{CL_NON_BLOCKING, cl_command_queue, cl_event, cl_int};

use crate::command_buffer::CommandBuffer;
use crate::launch::{self, Launch};
use crate::memory::OpenClPtr;

/// One command and its arguments.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Copy {
        to: OpenClPtr,
        from: OpenClPtr,
        len: usize,
    },
    Fill {
        at: OpenClPtr,
        value: u8,
        len: usize,
    },
    /// From an exposed address of the host.
    Write {
        to: OpenClPtr,
        from: usize,
        len: usize,
    },
    Launch(Arc<Launch>),
    /// To an exposed address of the host.
    Read {
        to: usize,
        from: OpenClPtr,
        len: usize,
    },
}

impl Work {
    /// The function that enqueues it.
    pub(crate) fn call(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "clEnqueueCopyBuffer",
            Self::Fill { .. } => "clEnqueueFillBuffer",
            Self::Launch(_) => "clEnqueueNDRangeKernel",
            Self::Write { .. } => "clEnqueueWriteBuffer",
            Self::Read { .. } => "clEnqueueReadBuffer",
        }
    }

    /// Enqueues the command.
    ///
    /// # Safety
    /// * The queue is alive.
    /// * The ranges are valid until the command is done, do not overlap, and nothing else uses what it writes. So are
    ///   the arguments of a kernel.
    pub(crate) unsafe fn enqueue(&self, queue: cl_command_queue) -> Result<cl_event, cl_int> {
        let none = ptr::null();
        match *self {
            // SAFETY: The caller promises a valid kernel.
            Self::Launch(ref kernel) => unsafe {
                launch::enqueue(queue, kernel.kernel(), kernel.global(), kernel.local())
            },
            Self::Copy { to, from, len } => {
                let ((to, at), (from, start)) = (to.native(), from.native());
                // SAFETY: The caller promises two valid ranges that do not overlap.
                unsafe { command_queue::enqueue_copy_buffer(queue, from, to, start, at, len, 0, none) }
            }
            Self::Fill { at, value, len } => {
                let ((buffer, at), pattern) = (at.native(), (&raw const value).cast());
                // SAFETY: The caller promises a valid range; the pattern is one byte, which the call copies.
                unsafe { command_queue::enqueue_fill_buffer(queue, buffer, pattern, 1, at, len, 0, none) }
            }
            Self::Write { to, from, len } => {
                let ((to, at), from) = (to.native(), ptr::with_exposed_provenance_mut(from));
                // SAFETY: The caller promises two valid ranges.
                unsafe { command_queue::enqueue_write_buffer(queue, to, CL_NON_BLOCKING, at, len, from, 0, none) }
            }
            Self::Read { to, from, len } => {
                let ((from, at), to) = (from.native(), ptr::with_exposed_provenance_mut(to));
                // SAFETY: The caller promises two valid ranges.
                unsafe { command_queue::enqueue_read_buffer(queue, from, CL_NON_BLOCKING, at, len, to, 0, none) }
            }
        }
    }

    /// Adds the command to a command buffer, unless the host takes part in it.
    ///
    /// # Safety
    /// * The command buffer is not finalized.
    /// * The ranges are valid whenever the command runs, and do not overlap. So are the arguments of a kernel, and this
    ///   value is alive then.
    pub(crate) unsafe fn add_to(&self, commands: &CommandBuffer) -> DriverResult<()> {
        match *self {
            // SAFETY: The caller promises the same.
            Self::Copy { to, from, len } => unsafe { commands.copy(to.native(), from.native(), len) },
            // SAFETY: The caller promises the same.
            Self::Fill { at, value, len } => unsafe { commands.fill(at.native(), value, len) },
            Self::Launch(ref launch) => {
                let local = launch.local().map_or(ptr::null(), <[usize]>::as_ptr);
                // SAFETY: The caller promises a valid kernel, and the lists are as long.
                unsafe { commands.launch(launch.kernel(), launch.global(), local) }
            }
            Self::Write { .. } | Self::Read { .. } => Ok(()),
        }
    }
}
