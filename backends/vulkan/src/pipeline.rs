//! Compiled shaders, with their layouts and descriptor sets.
#![allow(unsafe_code)] // calls into the driver

use std::ffi::CStr;
use std::fmt;
use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Pool, Pooled, get_mut, lock};
use ash::vk;

use crate::answer;
use crate::device::Device;
use crate::kernel::Kernel;
use crate::memory::VulkanPtr;
use crate::vulkan::Vulkan;

/// The number of descriptor sets in a pool.
const SETS: u32 = 16;

/// A compute pipeline and what it was made of. Null handles are not destroyed.
pub(crate) struct Pipeline {
    pub(crate) device: Arc<Device>,
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    /// The number of storage buffers.
    pub(crate) buffers: u32,
    /// The bytes of push constants.
    pub(crate) constants: u32,
    pools: Mutex<Vec<vk::DescriptorPool>>,
    sets: Arc<Pool<vk::DescriptorSet>>,
}

impl Vulkan {
    /// Compiles the function `name` of a compute shader. It has `buffers` storage buffers, at bindings 0, 1 and so on
    /// of set 0, and `constants` bytes of push constants. Vulkan: `vkCreateShaderModule`, `vkCreateComputePipelines`.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) if `spirv` does not consist of whole
    /// words, or for more buffers or constants than the device allows; errors of the driver.
    ///
    /// # Safety
    /// * `spirv` is valid SPIR-V for Vulkan, uses only what the device supports, and has this function and these
    ///   buffers and constants: drivers do not check that.
    pub unsafe fn kernel(&self, spirv: &[u8], name: &CStr, buffers: u32, constants: u32) -> DriverResult<Kernel> {
        let limits = &self.device.limits;
        self.device.check()?;
        if spirv.is_empty() || !spirv.len().is_multiple_of(4) {
            return Err(answer::refused("vkCreateShaderModule", "the code does not consist of words of 4 bytes"));
        }
        let most = limits.max_per_stage_descriptor_storage_buffers.min(limits.max_descriptor_set_storage_buffers);
        if buffers > most {
            let reason = "more buffers than maxPerStageDescriptorStorageBuffers";
            return Err(answer::refused("vkCreateDescriptorSetLayout", reason));
        }
        if constants > limits.max_push_constants_size || !constants.is_multiple_of(4) {
            let reason = "the values are longer than maxPushConstantsSize, or not a multiple of 4 bytes long";
            return Err(answer::refused("vkCreatePipelineLayout", reason));
        }
        let mut pipeline = Pipeline {
            device: Arc::clone(&self.device),
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            buffers,
            constants,
            pools: Mutex::default(),
            sets: Pool::new(usize::MAX),
        };
        pipeline.lay_out()?;
        let words: Vec<_> = spirv.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        // SAFETY: The caller promises valid code.
        unsafe { pipeline.compile(&words, name) }?;
        Ok(Kernel(Arc::new(pipeline)))
    }
}

impl Pipeline {
    fn lay_out(&mut self) -> DriverResult<()> {
        let (device, stage) = (&self.device, vk::ShaderStageFlags::COMPUTE);
        let binding = |number| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(number)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(stage)
        };
        let bindings: Vec<_> = (0..self.buffers).map(binding).collect();
        let description = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: The device allows so many buffers.
        let made = unsafe { device.raw.create_descriptor_set_layout(&description, None) };
        self.set_layout = device.answer("vkCreateDescriptorSetLayout", made)?;
        let set_layouts = [self.set_layout];
        let ranges = [vk::PushConstantRange::default().stage_flags(stage).size(self.constants)];
        let ranges = if self.constants > 0 { &ranges[..] } else { &[] };
        let description =
            vk::PipelineLayoutCreateInfo::default().set_layouts(&set_layouts).push_constant_ranges(ranges);
        // SAFETY: The device allows so many constants.
        let made = unsafe { device.raw.create_pipeline_layout(&description, None) };
        self.layout = device.answer("vkCreatePipelineLayout", made)?;
        Ok(())
    }

    /// # Safety
    /// * The code is valid, and has this function and this layout.
    unsafe fn compile(&mut self, code: &[u32], name: &CStr) -> DriverResult<()> {
        let device = &self.device;
        let description = vk::ShaderModuleCreateInfo::default().code(code);
        // SAFETY: The caller promises valid code.
        let module = unsafe { device.raw.create_shader_module(&description, None) };
        let module = device.answer("vkCreateShaderModule", module)?;
        let stage =
            vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE).module(module).name(name);
        let description = vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout);
        let cache = vk::PipelineCache::null();
        // SAFETY: The caller promises that the code has this function and this layout.
        let made = unsafe { device.raw.create_compute_pipelines(cache, &[description], None) };
        // SAFETY: The pipeline does not need the module any more.
        unsafe { device.raw.destroy_shader_module(module, None) };
        self.raw = device.answer("vkCreateComputePipelines", made.map_err(|(_, result)| result))?[0];
        Ok(())
    }

    /// Returns a descriptor set with these buffers, or `None` if the kernel has none. There are as many as it has. The
    /// launch keeps the set until it is over.
    pub(crate) fn set(&self, buffers: &[(VulkanPtr, u64)]) -> DriverResult<Option<Pooled<vk::DescriptorSet>>> {
        if buffers.is_empty() {
            return Ok(None);
        }
        let set = self.sets.take(|| self.new_set())?;
        let info = |(place, len): &(VulkanPtr, u64)| {
            let (buffer, offset) = place.native();
            vk::DescriptorBufferInfo::default().buffer(buffer).offset(offset).range(*len)
        };
        let infos: Vec<_> = buffers.iter().map(info).collect();
        let of_kind =
            vk::WriteDescriptorSet::default().dst_set(*set).descriptor_type(vk::DescriptorType::STORAGE_BUFFER);
        let writes = (0..).zip(infos.chunks(1)).map(|(binding, info)| of_kind.dst_binding(binding).buffer_info(info));
        let writes: Vec<_> = writes.collect();
        // SAFETY: No work uses the set, and it has as many bindings.
        unsafe { self.device.raw.update_descriptor_sets(&writes, &[]) };
        Ok(Some(set))
    }

    /// Makes several sets, of which it returns one.
    fn new_set(&self) -> DriverResult<vk::DescriptorSet> {
        let device = &self.device;
        let sizes =
            [vk::DescriptorPoolSize { ty: vk::DescriptorType::STORAGE_BUFFER, descriptor_count: self.buffers * SETS }];
        let description = vk::DescriptorPoolCreateInfo::default().max_sets(SETS).pool_sizes(&sizes);
        // SAFETY: The sizes are not 0.
        let pool = unsafe { device.raw.create_descriptor_pool(&description, None) };
        let pool = device.answer("vkCreateDescriptorPool", pool)?;
        lock(&self.pools).push(pool);
        let layouts = [self.set_layout; SETS as usize];
        let description = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: The pool has room for as many sets of this layout, and no other thread uses it.
        let made = unsafe { device.raw.allocate_descriptor_sets(&description) };
        let mut made = device.answer("vkAllocateDescriptorSets", made)?.into_iter();
        let none = answer::error("vkAllocateDescriptorSets", vk::Result::ERROR_OUT_OF_POOL_MEMORY);
        let first = made.next().ok_or(none)?;
        made.for_each(|set| self.sets.add(set));
        Ok(first)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let Self { device, .. } = self;
        for pool in get_mut(&mut self.pools).drain(..) {
            // SAFETY: Each launch keeps this value until it is over.
            device.destroy(|raw| unsafe { raw.destroy_descriptor_pool(pool, None) });
        }
        // SAFETY: As above.
        device.destroy(|raw| unsafe { raw.destroy_pipeline(self.raw, None) });
        // SAFETY: As above.
        device.destroy(|raw| unsafe { raw.destroy_pipeline_layout(self.layout, None) });
        // SAFETY: As above.
        device.destroy(|raw| unsafe { raw.destroy_descriptor_set_layout(self.set_layout, None) });
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pipeline").field(&self.raw).finish()
    }
}
