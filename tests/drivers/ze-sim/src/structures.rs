//! Structures that begin with their type (`stype`), and chains of them.

use std::ffi::c_void;

use level_zero_sys::*;

use crate::state::Driver;

/// A structure that starts with its type and a pointer to the next structure.
pub(crate) trait Structure {
    /// Its name, and the values that its `stype` may have.
    const NAME: &'static str;
    const TYPES: &'static [u32];

    fn stype(&self) -> u32;
}

macro_rules! structures {
    ($($name:ty: $kind:ident [$($type:ident),+];)*) => {$(
        impl Structure for $name {
            const NAME: &'static str = stringify!($name);
            const TYPES: &'static [u32] = &[$($kind::$type.0),+];

            fn stype(&self) -> u32 {
                self.stype.0
            }
        }
    )*};
}

structures! {
    ze_init_driver_type_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC];
    ze_driver_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES];
    ze_device_properties_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2];
    ze_device_compute_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES];
    ze_device_module_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES];
    ze_command_queue_group_properties_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES];
    ze_device_memory_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES];
    ze_device_memory_access_properties_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES];
    ze_device_external_memory_properties_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES];
    ze_external_memory_export_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC];
    ze_external_memory_export_fd_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD];
    ze_external_memory_import_fd_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD];
    ze_device_p2p_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES];
    ze_pci_ext_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES];
    ze_context_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_CONTEXT_DESC];
    ze_command_queue_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC];
    ze_command_list_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC];
    ze_fence_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_FENCE_DESC];
    ze_event_pool_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_EVENT_POOL_DESC];
    ze_event_pool_counter_based_exp_desc_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC];
    ze_event_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_EVENT_DESC];
    ze_device_mem_alloc_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC];
    ze_host_mem_alloc_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC];
    ze_relaxed_allocation_limits_exp_desc_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC];
    ze_memory_allocation_properties_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES];
    ze_physical_mem_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC];
    ze_module_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_MODULE_DESC];
    ze_kernel_desc_t: ze_structure_type_t [ZE_STRUCTURE_TYPE_KERNEL_DESC];
    ze_device_usablemem_size_ext_properties_t: ze_structure_type_t
        [ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES];
    zes_device_properties_t: zes_structure_type_t [ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES];
    zes_mem_properties_t: zes_structure_type_t [ZES_STRUCTURE_TYPE_MEM_PROPERTIES];
    zes_mem_state_t: zes_structure_type_t [ZES_STRUCTURE_TYPE_MEM_STATE];
}

impl Driver {
    /// Records a violation if the `stype` of a structure is wrong. Some drivers depend on the `stype`, and chains
    /// always do.
    pub(crate) fn check_type<T: Structure>(&mut self, structure: &T) {
        let said = structure.stype();
        if !T::TYPES.contains(&said) {
            self.violation(format!("a {} says that its type is {said:#x}", T::NAME));
        }
    }
}

/// The fields that every structure of a chain starts with.
#[repr(C)]
struct Link {
    stype: u32,
    next: *const c_void,
}

/// Returns the structure of a type in a chain. Other structures are skipped.
///
/// # Safety
///
/// * `chain` is null, or points to a structure of the API, whose `pNext` is again null or such a pointer. Each has the
///   type that its `stype` says, and lives until the call returns.
pub(crate) unsafe fn find<'a, T: Structure>(chain: *const c_void) -> Option<&'a T> {
    // SAFETY: the caller guarantees the same.
    let found = unsafe { place::<T>(chain) };
    // SAFETY: its `stype` says that it is of this type.
    unsafe { found.as_ref() }
}

/// Returns the structure of a type in a chain, to be filled in.
///
/// # Safety
///
/// * As for [`find`], and nothing else uses the structure.
pub(crate) unsafe fn find_mut<'a, T: Structure>(chain: *mut c_void) -> Option<&'a mut T> {
    // SAFETY: the caller guarantees the same.
    let found = unsafe { place::<T>(chain) };
    // SAFETY: its `stype` says that it is of this type.
    unsafe { found.cast_mut().as_mut() }
}

/// Returns the address of the structure, or null if there is none.
///
/// # Safety
///
/// * As for [`find`].
unsafe fn place<T: Structure>(mut chain: *const c_void) -> *const T {
    // SAFETY: the caller guarantees that every structure starts with the fields of a link.
    while let Some(link) = unsafe { chain.cast::<Link>().as_ref() } {
        if T::TYPES.contains(&link.stype) {
            return chain.cast();
        }
        chain = link.next;
    }
    std::ptr::null()
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn chains_are_followed_past_what_is_unknown() {
        let limits = ze_relaxed_allocation_limits_exp_desc_t { flags: 1, ..Default::default() };
        let unknown = ze_external_memory_export_desc_t { pNext: ptr::from_ref(&limits).cast(), ..Default::default() };
        let chain: *const c_void = ptr::from_ref(&unknown).cast();
        // SAFETY: both are live, and their `stype` is right.
        let found = unsafe { find::<ze_relaxed_allocation_limits_exp_desc_t>(chain) };
        assert_eq!(found.map(|limits| limits.flags), Some(1));
        // SAFETY: as above.
        assert!(unsafe { find::<ze_fence_desc_t>(chain) }.is_none());
        // SAFETY: The pointer is null.
        assert!(unsafe { find::<ze_fence_desc_t>(ptr::null()) }.is_none());
    }
}
