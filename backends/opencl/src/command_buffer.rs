//! Command buffers of the driver: `cl_khr_command_buffer`.
#![allow(unsafe_code)] // calls functions that are looked up by name

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr::{self, null, null_mut};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::try_twice;
use cl3::device;
use cl3::error_codes::CL_SUCCESS;
use cl3::ext::{
    CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR, CL_COMMAND_BUFFER_FLAGS_KHR,
    CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR,
};
use cl3::types::{
    cl_command_queue, cl_device_id, cl_event, cl_int, cl_kernel, cl_mem, cl_platform_id, cl_uint, cl_ulong,
};

use crate::{answer, devices};

/// Since this version, the functions that record commands have one more argument.
const MORE_ARGUMENTS: u32 = version(0, 9, 5);
/// The first version that this crate does not know.
const UNKNOWN: u32 = version(2, 0, 0);

type Raw = *mut c_void;
/// A list that ends with 0; none if null.
type Properties = *const cl_ulong;
type Create = unsafe extern "C" fn(cl_uint, *const cl_command_queue, Properties, *mut cl_int) -> Raw;
type Change = unsafe extern "C" fn(Raw) -> cl_int;
type Enqueue =
    unsafe extern "C" fn(cl_uint, *mut cl_command_queue, Raw, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
/// The arguments that follow those of the command: sync points to wait for, and where to write that of the command and
/// its handle.
macro_rules! record {
    ($($argument:ty),*) => {
        unsafe extern "C" fn(
            Raw, cl_command_queue, $($argument,)* cl_uint, *const cl_uint, *mut cl_uint, *mut Raw
        ) -> cl_int
    };
}
type CopyBuffer = record!(cl_mem, cl_mem, usize, usize, usize);
type FillBuffer = record!(cl_mem, *const c_void, usize, usize, usize);
type LaterCopyBuffer = record!(Properties, cl_mem, cl_mem, usize, usize, usize);
type LaterFillBuffer = record!(Properties, cl_mem, *const c_void, usize, usize, usize);
type LaunchKernel = record!(Properties, cl_kernel, cl_uint, *const usize, *const usize, *const usize);

/// The functions whose arguments depend on the version.
#[derive(Clone, Copy, Debug)]
enum Transfers {
    First(CopyBuffer, FillBuffer),
    Later(LaterCopyBuffer, LaterFillBuffer),
}

/// The functions of a driver's extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandBuffers {
    create: Create,
    finalize: Change,
    release: Change,
    enqueue: Enqueue,
    transfers: Transfers,
    launch: LaunchKernel,
    /// Whether a command buffer may be enqueued again before its work is done.
    pub(crate) may_repeat: bool,
}

/// A list of commands for one queue, which runs them in their order each time that it is enqueued.
#[derive(Debug)]
pub(crate) struct CommandBuffer {
    calls: CommandBuffers,
    raw: Raw,
}

// SAFETY: OpenCL objects may be used from any thread. Commands are added before the value is shared.
unsafe impl Send for CommandBuffer {}
// SAFETY: As for `Send`.
unsafe impl Sync for CommandBuffer {}

impl CommandBuffers {
    /// Returns `None` if the device lacks the extension, or has a version that this crate does not know.
    pub(crate) fn of(device: cl_device_id) -> Option<Self> {
        let version = devices::extension(device, "cl_khr_command_buffer")?;
        if version >= UNKNOWN {
            return None;
        }
        let platform = device::get_device_info(device, device::CL_DEVICE_PLATFORM).map(isize::from).ok()?;
        let platform = ptr::with_exposed_provenance_mut(platform as usize);
        let able = devices::number(device, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR).ok()?;
        let transfers = if version < MORE_ARGUMENTS {
            // SAFETY: Before this version, the function of this name has this type.
            let copy = unsafe { function(platform, c"clCommandCopyBufferKHR") }?;
            // SAFETY: As above.
            Transfers::First(copy, unsafe { function(platform, c"clCommandFillBufferKHR") }?)
        } else {
            // SAFETY: Since this version, the function of this name has this type.
            let copy = unsafe { function(platform, c"clCommandCopyBufferKHR") }?;
            // SAFETY: As above.
            Transfers::Later(copy, unsafe { function(platform, c"clCommandFillBufferKHR") }?)
        };
        Some(Self {
            transfers,
            // SAFETY: In all known versions, the functions of these names have these types.
            create: unsafe { function(platform, c"clCreateCommandBufferKHR") }?,
            // SAFETY: As above.
            finalize: unsafe { function(platform, c"clFinalizeCommandBufferKHR") }?,
            // SAFETY: As above.
            release: unsafe { function(platform, c"clReleaseCommandBufferKHR") }?,
            // SAFETY: As above.
            enqueue: unsafe { function(platform, c"clEnqueueCommandBufferKHR") }?,
            // SAFETY: As above.
            launch: unsafe { function(platform, c"clCommandNDRangeKernelKHR") }?,
            may_repeat: able & CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR != 0,
        })
    }

    /// Makes a command buffer for a queue, which must outlive it.
    pub(crate) fn create(self, queue: cl_command_queue) -> DriverResult<CommandBuffer> {
        let flags = [CL_COMMAND_BUFFER_FLAGS_KHR, CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0];
        let properties = if self.may_repeat { flags.as_ptr() } else { null() };
        let mut code = CL_SUCCESS;
        // SAFETY: The queue is alive; the list of properties ends with 0.
        let raw = unsafe { (self.create)(1, &queue, properties, &mut code) };
        check("clCreateCommandBufferKHR", code)?;
        Ok(CommandBuffer { calls: self, raw })
    }
}

impl CommandBuffer {
    /// Adds a copy from one place in a buffer object to another.
    ///
    /// # Safety
    /// * Both ranges are valid whenever the command runs, and do not overlap. The command buffer is not finalized.
    pub(crate) unsafe fn copy(&self, to: (cl_mem, usize), from: (cl_mem, usize), len: usize) -> DriverResult<()> {
        let ((to, at), (from, start)) = (to, from);
        let code = match self.calls.transfers {
            // SAFETY: The caller promises valid ranges. The command is for the only queue, which is in order, so it
            // needs no sync points.
            Transfers::First(copy, _) => unsafe {
                copy(self.raw, null_mut(), from, to, start, at, len, 0, null(), null_mut(), null_mut())
            },
            // SAFETY: As above.
            Transfers::Later(copy, _) => unsafe {
                copy(self.raw, null_mut(), null(), from, to, start, at, len, 0, null(), null_mut(), null_mut())
            },
        };
        check("clCommandCopyBufferKHR", code)
    }

    /// Adds a fill.
    ///
    /// # Safety
    /// * The range is valid whenever the command runs. The command buffer is not finalized.
    pub(crate) unsafe fn fill(&self, (buffer, at): (cl_mem, usize), value: u8, len: usize) -> DriverResult<()> {
        let pattern = (&raw const value).cast();
        let code = match self.calls.transfers {
            // SAFETY: The caller promises a valid range; the pattern is one byte, which the call copies. The command is
            // for the only queue, as above.
            Transfers::First(_, fill) => unsafe {
                fill(self.raw, null_mut(), buffer, pattern, 1, at, len, 0, null(), null_mut(), null_mut())
            },
            // SAFETY: As above.
            Transfers::Later(_, fill) => unsafe {
                fill(self.raw, null_mut(), null(), buffer, pattern, 1, at, len, 0, null(), null_mut(), null_mut())
            },
        };
        check("clCommandFillBufferKHR", code)
    }

    /// Adds a kernel with the arguments that it has now.
    ///
    /// # Safety
    /// * The kernel and its arguments are valid whenever the command runs. Both lists of sizes are as long. The command
    ///   buffer is not finalized.
    pub(crate) unsafe fn launch(&self, kernel: cl_kernel, global: &[usize], local: *const usize) -> DriverResult<()> {
        let (dimensions, global) = (global.len() as cl_uint, global.as_ptr());
        // SAFETY: The caller promises a valid kernel. The command is for the only queue, as above.
        let code = unsafe {
            let launch = self.calls.launch;
            launch(
                self.raw,
                null_mut(),
                null(),
                kernel,
                dimensions,
                null(),
                global,
                local,
                0,
                null(),
                null_mut(),
                null_mut(),
            )
        };
        check("clCommandNDRangeKernelKHR", code)
    }

    /// Ends the list. From now on it may be enqueued.
    pub(crate) fn finalize(&self) -> DriverResult<()> {
        // SAFETY: The command buffer is alive.
        check("clFinalizeCommandBufferKHR", unsafe { (self.calls.finalize)(self.raw) })
    }

    /// Enqueues the commands in the queue.
    ///
    /// # Safety
    /// * The command buffer is finalized. If it may not repeat, its last work is done.
    /// * The memory that the commands use is valid until they are done.
    pub(crate) unsafe fn enqueue(&self) -> Result<cl_event, cl_int> {
        let mut event = null_mut();
        // SAFETY: The caller promises this. Without a list of queues, the commands go to their own.
        let code = unsafe { (self.calls.enqueue)(0, null_mut(), self.raw, 0, null(), &mut event) };
        if code == CL_SUCCESS { Ok(event) } else { Err(code) }
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        // SAFETY: The command buffer is alive, and the reference is ours: a refused call releases nothing.
        try_twice(|| check("clReleaseCommandBufferKHR", unsafe { (self.calls.release)(self.raw) }));
    }
}

fn check(call: &'static str, code: cl_int) -> DriverResult<()> {
    answer::of(call, if code == CL_SUCCESS { Ok(()) } else { Err(code) })
}

/// Packs a version as OpenCL does (`CL_MAKE_VERSION`).
const fn version(major: u32, minor: u32, patch: u32) -> u32 {
    major << 22 | minor << 12 | patch
}

/// Returns a function of the driver.
///
/// # Safety
/// * `F` is the type of the function of this name.
unsafe fn function<F>(platform: cl_platform_id, name: &CStr) -> Option<F> {
    let library = cl3::load_library().as_ref().ok()?;
    let found = library.clGetExtensionFunctionAddressForPlatform(platform, name.as_ptr());
    let found = found.filter(|address| !address.is_null())?;
    // SAFETY: The caller promises that it is the address of such a function.
    Some(unsafe { mem::transmute_copy::<Raw, F>(&found) })
}
