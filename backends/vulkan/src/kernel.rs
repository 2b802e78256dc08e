//! User kernels: compute shaders, from SPIR-V.
#![allow(unsafe_code)] // launches code of the user

use std::sync::Arc;

use accelerator_core::{Buffer, DriverResult, Error, Operator, OperatorKind, Result, Stream, report_operator};
use ash::vk;
use bytemuck::NoUninit;

use crate::answer;
use crate::memory::VulkanPtr;
use crate::pipeline::Pipeline;
use crate::stream::VulkanStream;
use crate::vulkan::Vulkan;
use crate::work::{Launch, Work};

/// A compute shader that the driver has compiled. It may be dropped while launches are pending.
#[derive(Debug)]
pub struct Kernel(pub(crate) Arc<Pipeline>);

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A push constant, by its bytes. Several follow each other without gaps.
    Value(&'a [u8]),
    /// A storage buffer. The first is binding 0 of set 0, the next binding 1. The stream's use of it is recorded.
    Buffer(&'a Buffer<Vulkan>),
}

impl<'a> Argument<'a> {
    /// Makes an argument from a number, or anything else that the kernel takes by value.
    pub fn value<T: NoUninit>(value: &'a T) -> Self {
        Self::Value(bytemuck::bytes_of(value))
    }
}

impl Kernel {
    /// Launches `groups` work groups, after the stream's earlier work. The shader has their size. Vulkan:
    /// `vkCmdPushConstants`, `vkCmdBindDescriptorSets`, `vkCmdDispatch`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a buffer of another device; errors of
    /// [`launch_native`](Self::launch_native).
    ///
    /// # Safety
    /// * The stream belongs to the kernel's device, and the arguments match the shader.
    /// * The kernel stays within the buffers. Nothing else uses the buffers that it writes before the stream has
    ///   executed it.
    pub unsafe fn launch(&self, stream: Stream<Vulkan>, groups: [u32; 3], arguments: &[Argument<'_>]) -> Result<()> {
        let (mut buffers, mut uses, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        let driver_error = |source| Error::Driver { device: stream.device(), source };
        for argument in arguments {
            match argument {
                Argument::Value(bytes) => constants.extend_from_slice(bytes),
                Argument::Buffer(buffer) => {
                    uses.push(buffer.begin_use(stream)?);
                    let empty = || answer::refused("vkUpdateDescriptorSets", "an argument is an empty buffer");
                    buffers.push((buffer.ptr().ok_or_else(|| driver_error(empty()))?, buffer.len()));
                }
            }
        }
        // SAFETY: The caller makes the same promise.
        let launched = unsafe { self.launch_native(stream.native(), groups, &buffers, &constants) };
        launched.map_err(driver_error)?;
        drop(uses); // from here on, pausing waits for the stream
        report_operator(|| Operator::on(stream, OperatorKind::Launch, 0));
        Ok(())
    }

    /// Like [`launch`](Self::launch), with places in memory and their lengths as storage buffers, and the bytes of the
    /// push constants, for memory and streams whose use is recorded elsewhere.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) for other numbers of buffers or bytes
    /// than the kernel was made with, and for what the device does not allow: so many groups, such a long buffer, or
    /// one that starts there. Errors of the driver.
    ///
    /// # Safety
    /// * The requirements of `launch`; the memory stays allocated until the stream has executed the kernel.
    pub unsafe fn launch_native(
        &self,
        stream: &VulkanStream,
        groups: [u32; 3],
        buffers: &[(VulkanPtr, u64)],
        constants: &[u8],
    ) -> DriverResult<()> {
        self.check(groups, buffers, constants)?;
        let (pipeline, set) = (Arc::clone(&self.0), self.0.set(buffers)?);
        let launch = Launch { pipeline, set, constants: constants.to_vec(), groups };
        // SAFETY: The caller promises that the arguments match the shader, and that the memory stays allocated.
        unsafe { stream.timeline.run(Work::Launch(Arc::new(launch))) }
    }

    /// Returns the pipeline and its layout for other libraries. They are valid as long as this value lives.
    pub fn native(&self) -> (vk::Pipeline, vk::PipelineLayout) {
        (self.0.raw, self.0.layout)
    }

    fn check(&self, groups: [u32; 3], buffers: &[(VulkanPtr, u64)], constants: &[u8]) -> DriverResult<()> {
        let limits = &self.0.device.limits;
        if buffers.len() != self.0.buffers as usize || constants.len() != self.0.constants as usize {
            let reason = "the kernel was made with another number of buffers or of bytes of values";
            return Err(answer::refused("vkCmdBindDescriptorSets", reason));
        }
        if groups.iter().zip(limits.max_compute_work_group_count).any(|(groups, limit)| *groups > limit) {
            return Err(answer::refused("vkCmdDispatch", "more groups than maxComputeWorkGroupCount"));
        }
        for (place, len) in buffers {
            let (_, offset) = place.native();
            if !offset.is_multiple_of(limits.min_storage_buffer_offset_alignment) {
                let reason = "a buffer does not start at a multiple of minStorageBufferOffsetAlignment";
                return Err(answer::refused("vkUpdateDescriptorSets", reason));
            }
            if *len > limits.max_storage_buffer_range.into() {
                return Err(answer::refused("vkUpdateDescriptorSets", "a buffer is longer than maxStorageBufferRange"));
            }
        }
        Ok(())
    }
}
