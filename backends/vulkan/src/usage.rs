//! How much memory is free.
#![allow(unsafe_code)] // calls into the driver

use accelerator_core::MemoryInfo;
use ash::vk;

use crate::vulkan::Vulkan;

impl Vulkan {
    /// Returns the free memory by the driver's budget, if it has one, and by the backend's own count otherwise. Either
    /// way, no more is free than the device may still hand out.
    pub(crate) fn free_memory(&self) -> MemoryInfo {
        self.accounting.memory_info_with(self.has_budget.then(|| self.free_in_budget()))
    }

    fn free_in_budget(&self) -> u64 {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let (instance, physical) = (&self.device.instance, self.device.physical);
        // SAFETY: The device is one of the instance, and supports the structure in the chain.
        unsafe { instance.get_physical_device_memory_properties2(physical, &mut all) };
        let heap = self.memory.segments.heap;
        budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap])
    }
}
