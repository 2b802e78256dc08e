//! User kernels, from SPIR-V.
#![allow(unsafe_code)] // calls the driver

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use accelerator_core::backend_kit::try_twice;
use accelerator_core::{
    Buffer, DriverError, DriverErrorKind, DriverResult, Error, Operator, OperatorKind, Result, Stream, report_operator,
};
use bytemuck::NoUninit;
use level_zero_sys as sys;

use crate::answer::{ask, call};
use crate::device::Device;
use crate::queue::{Queue, XpuStream};
use crate::work::Work;
use crate::xpu::Xpu;

/// Code that the driver has compiled for a device. Its kernels keep it alive.
#[derive(Debug)]
pub struct Module {
    device: Arc<Device>,
    raw: sys::ze_module_handle_t,
}

// SAFETY: The handle is only a name; any thread may use it.
unsafe impl Send for Module {}
// SAFETY: As for `Send`.
unsafe impl Sync for Module {}

/// The error when the driver could not compile a module.
pub struct ModuleError {
    /// The error of the call.
    pub source: DriverError,
    /// The compiler's output.
    pub log: String,
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, if self.log.is_empty() { "there is no log" } else { &self.log })
    }
}

impl std::error::Error for ModuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

accelerator_core::debug_as_display!(ModuleError);

impl Xpu {
    /// Compiles SPIR-V for OpenCL, with flags such as `-ze-opt-greater-than-4GB-buffer-required`. Level Zero:
    /// `zeModuleCreate`.
    ///
    /// # Errors
    /// Errors of the driver, with the compiler's log.
    ///
    /// # Safety
    /// * `spirv` is valid SPIR-V: Intel's compiler terminates the process if it is not.
    pub unsafe fn module(&self, spirv: &[u8], flags: &CStr) -> Result<Arc<Module>, ModuleError> {
        let description = sys::ze_module_desc_t {
            format: sys::ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: spirv.len(),
            pInputModule: spirv.as_ptr(),
            pBuildFlags: flags.as_ptr(),
            ..Default::default()
        };
        let (device, mut raw, mut log) = (&self.device, ptr::null_mut(), ptr::null_mut());
        let (context, on) = (device.context(), device.raw());
        // SAFETY: The `stype` of the description is set, and the data that it points to is alive; the call writes two
        // handles.
        let made = unsafe { call!(device, zeModuleCreate(context, on, &description, &mut raw, &mut log)) };
        let log = if log.is_null() { String::new() } else { told(device, log) };
        made.map_err(|source| ModuleError { source, log })?;
        Ok(Arc::new(Module { device: Arc::clone(device), raw }))
    }
}

/// Returns the compiler's log, as far as it can be read, and destroys the handle.
fn told(device: &Device, log: sys::ze_module_build_log_handle_t) -> String {
    let (api, mut size, mut text) = (device.api, 0, Vec::new());
    // SAFETY: Without a buffer for the text, the call only writes its size.
    let sized = unsafe { ask!(api, zeModuleBuildLogGetString(log, &mut size, ptr::null_mut())) };
    let read = sized.and_then(|()| {
        text.resize(size, 0_u8);
        // SAFETY: The buffer has room for this size.
        unsafe { ask!(api, zeModuleBuildLogGetString(log, &mut size, text.as_mut_ptr().cast())) }
    });
    // SAFETY: The log is not used again.
    let _ = unsafe { ask!(api, zeModuleBuildLogDestroy(log)) };
    let told = || String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n']).to_owned();
    read.map_or_else(|_| String::new(), |()| told())
}

impl Module {
    /// Returns the kernel of this name. Level Zero: `zeKernelCreate`.
    ///
    /// # Errors
    /// Errors of the driver, for instance if there is no such kernel.
    pub fn kernel(self: &Arc<Self>, name: &CStr) -> DriverResult<Kernel> {
        let prepared = Prepared::new(self, name)?;
        Ok(Kernel { prepared: Arc::new(prepared), name: name.to_owned(), launched_on: Vec::new() })
    }

    /// Returns the module for other libraries. It is valid as long as this value lives.
    pub fn native(&self) -> sys::ze_module_handle_t {
        self.raw
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: Each of its kernels holds a reference, so all of them have been destroyed.
        try_twice(|| unsafe { call!(self.device, zeModuleDestroy(self.raw)) });
    }
}

/// A kernel object of the driver, which keeps the arguments that were set last.
#[derive(Debug)]
pub(crate) struct Prepared {
    module: Arc<Module>,
    pub(crate) raw: sys::ze_kernel_handle_t,
}

// SAFETY: The handle is only a name; the owner of a kernel orders the operations that must not run at the same time.
unsafe impl Send for Prepared {}
// SAFETY: As for `Send`.
unsafe impl Sync for Prepared {}

impl Prepared {
    fn new(module: &Arc<Module>, name: &CStr) -> DriverResult<Self> {
        let description = sys::ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        let mut raw = ptr::null_mut();
        // SAFETY: The `stype` of the description is set, and the name is alive; the call writes a handle.
        unsafe { call!(module.device, zeKernelCreate(module.raw, &description, &mut raw)) }?;
        Ok(Self { module: Arc::clone(module), raw })
    }

    fn set(&self, threads: [u32; 3], arguments: &[impl AsRef<[u8]>]) -> DriverResult<()> {
        let device = &self.module.device;
        for (place, argument) in (0..).zip(arguments) {
            let (size, value) = (argument.as_ref().len(), argument.as_ref().as_ptr().cast());
            // SAFETY: The call copies the value.
            unsafe { call!(device, zeKernelSetArgumentValue(self.raw, place, size, value)) }?;
        }
        let [x, y, z] = threads;
        // SAFETY: A size that the device does not support is rejected.
        unsafe { call!(device, zeKernelSetGroupSize(self.raw, x, y, z)) }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: Its launches are done: a kernel and a graph wait for them before they drop this.
        try_twice(|| unsafe { call!(self.module.device, zeKernelDestroy(self.raw)) });
    }
}

/// A function of a module. When it is dropped, it waits for its launches.
#[derive(Debug)]
pub struct Kernel {
    prepared: Arc<Prepared>,
    name: CString,
    launched_on: Vec<Arc<Queue>>,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A value, by its bytes.
    Value(&'a [u8]),
    /// The address of a buffer. The stream's use of it is recorded.
    Buffer(&'a Buffer<Xpu>),
}

impl<'a> Argument<'a> {
    /// Makes an argument from a number, or anything else that the kernel takes by value.
    pub fn value<T: NoUninit>(value: &'a T) -> Self {
        Self::Value(bytemuck::bytes_of(value))
    }
}

impl Kernel {
    /// Launches `groups` groups of `threads` threads each, after the stream's earlier work. Level Zero:
    /// `zeKernelSetArgumentValue`, `zeKernelSetGroupSize`, `zeCommandListAppendLaunchKernel`.
    ///
    /// If the stream captures, the graph gets a kernel object of its own with these arguments (`zeKernelCreate`). It
    /// lacks what other libraries have set on [`native`](Self::native).
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a buffer of another device; errors of the driver.
    ///
    /// # Safety
    /// * The stream belongs to the module's device, and the arguments match the kernel: not all drivers check their
    ///   sizes.
    /// * The kernel stays within the buffers. Nothing else uses the buffers that it writes before the stream has
    ///   executed it.
    pub unsafe fn launch(
        &mut self,
        stream: Stream<Xpu>,
        groups: [u32; 3],
        threads: [u32; 3],
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        let (mut values, mut uses) = (Vec::with_capacity(arguments.len()), Vec::new());
        for argument in arguments {
            values.push(match argument {
                Argument::Value(bytes) => Cow::Borrowed(*bytes),
                Argument::Buffer(buffer) => {
                    uses.push(buffer.begin_use(stream)?);
                    let address = buffer.ptr().map_or(ptr::null_mut(), |at| at.native());
                    Cow::Owned(address.expose_provenance().to_ne_bytes().to_vec())
                }
            });
        }
        // SAFETY: The caller makes the same promise; an address is passed as its bytes.
        let launched = unsafe { self.launch_native(stream.native(), groups, threads, &values) };
        launched.map_err(|source| Error::Driver { device: stream.device(), source })?;
        drop(uses); // from here on, pausing waits for the stream
        report_operator(|| Operator::on(stream, OperatorKind::Launch, 0));
        Ok(())
    }

    /// Like [`launch`](Self::launch), with the bytes of each argument, for memory and streams whose use is recorded
    /// elsewhere.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// * The requirements of `launch`; memory is passed as the bytes of its address, and stays allocated until the
    ///   stream has executed the kernel.
    pub unsafe fn launch_native(
        &mut self,
        stream: &XpuStream,
        groups: [u32; 3],
        threads: [u32; 3],
        arguments: &[impl AsRef<[u8]>],
    ) -> DriverResult<()> {
        let queue = &stream.0;
        let captures = &queue.device.captures;
        if captures.is_capturing(queue.number) {
            // The graph gets a kernel object of its own, since the arguments of this one will change.
            let kernel = Arc::new(Prepared::new(&self.prepared.module, &self.name)?);
            kernel.set(threads, arguments)?;
            let ended = || {
                let why = "another thread has ended the capture meanwhile";
                DriverError::refused(DriverErrorKind::InvalidArgument, "zeCommandListAppendLaunchKernel", why)
            };
            let captured = captures.record(queue.number, || Work::Launch { kernel, groups });
            return captured.then_some(()).ok_or_else(ended);
        }
        self.prepared.set(threads, arguments)?;
        if !self.launched_on.iter().any(|other| Arc::ptr_eq(other, queue)) {
            self.launched_on.push(Arc::clone(queue));
        }
        let (device, work) =
            (&self.prepared.module.device, Work::Launch { kernel: Arc::clone(&self.prepared), groups });
        // SAFETY: The caller promises that the arguments match; the list is used under its lock.
        device.health.run(|| queue.submit(|list| unsafe { work.append(device.api, list) }))
    }

    /// Returns the kernel for other libraries. It is valid as long as this value lives.
    pub fn native(&self) -> sys::ze_kernel_handle_t {
        self.prepared.raw
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if !self.launched_on.iter().all(|queue| queue.is_done()) {
            std::mem::forget(Arc::clone(&self.prepared)); // the kernel may still be running, so it is leaked
        }
    }
}
