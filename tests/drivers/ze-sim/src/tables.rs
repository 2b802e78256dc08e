//! The function tables that the loader requests. This library exports no other functions of Level Zero.

use level_zero_sys::ddi::*;
use level_zero_sys::*;

use crate::calls::*;
use crate::result::{Outcome, Refusal, result};
use crate::state::Session;

/// A version of the API: major and minor number.
pub(crate) type Version = (u32, u32);

/// Decodes an API version, whose upper half is the major number.
pub(crate) fn version_of(number: ze_api_version_t) -> Version {
    (number.0 >> 16, number.0 & 0xffff)
}

/// Encodes an API version.
pub(crate) fn number_of(version: Version) -> ze_api_version_t {
    ze_api_version_t(version.0 << 16 | version.1)
}

/// Returns the version up to which a table is filled: the older of the loader's and the driver's.
fn agreed(asked: ze_api_version_t, table_is_null: bool) -> Outcome<Version> {
    let (asked, own) = (version_of(asked), Session::new().settings.version);
    if table_is_null {
        return Err(Refusal::INVALID_NULL_POINTER);
    }
    if asked.0 != own.0 { Err(Refusal::UNSUPPORTED_VERSION) } else { Ok(asked.min(own)) }
}

/// Exports the functions that fill tables. Each entry of a table has the first version that includes it.
macro_rules! tables {
    ($(fn $name:ident($table:ty) {
        $(($major:literal, $minor:literal) $entry:ident = $function:ident,)*
    })*) => {$(
        /// Fills one of the loader's tables.
        ///
        /// # Safety
        ///
        /// * `table` is null, or as long as the table of that API version.
        // SAFETY: the loader looks up this name only in the library that it opened.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(version: ze_api_version_t, table: *mut $table) -> ze_result_t {
            result(agreed(version, table.is_null()).map(|agreed| {
                $(if agreed >= ($major, $minor) {
                    // SAFETY: the table is not null, and long enough for the entries of that version.
                    let entry = unsafe { &raw mut (*table).$entry };
                    // SAFETY: as above.
                    unsafe { entry.write(Some($function)) };
                })*
            }))
        }
    )*};
}

/// Exports the functions for tables whose functions are not simulated. They leave the tables empty.
macro_rules! empty_tables {
    ($($name:ident,)*) => {$(
        /// Leaves one of the loader's tables empty.
        // SAFETY: as for the others.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(version: ze_api_version_t, table: *mut std::ffi::c_void) -> ze_result_t {
            result(agreed(version, table.is_null()).map(drop))
        }
    )*};
}

tables! {
    fn zeGetGlobalProcAddrTable(ze_global_dditable_t) {
        (1, 0) pfnInit = zeInit,
        (1, 10) pfnInitDrivers = zeInitDrivers,
    }
    fn zeGetDriverProcAddrTable(ze_driver_dditable_t) {
        (1, 0) pfnGet = zeDriverGet,
        (1, 0) pfnGetApiVersion = zeDriverGetApiVersion,
        (1, 0) pfnGetProperties = zeDriverGetProperties,
        (1, 0) pfnGetExtensionProperties = zeDriverGetExtensionProperties,
        (1, 6) pfnGetLastErrorDescription = zeDriverGetLastErrorDescription,
    }
    fn zeGetDeviceProcAddrTable(ze_device_dditable_t) {
        (1, 0) pfnGet = zeDeviceGet,
        (1, 0) pfnGetSubDevices = zeDeviceGetSubDevices,
        (1, 0) pfnGetProperties = zeDeviceGetProperties,
        (1, 0) pfnGetComputeProperties = zeDeviceGetComputeProperties,
        (1, 0) pfnGetModuleProperties = zeDeviceGetModuleProperties,
        (1, 0) pfnGetCommandQueueGroupProperties = zeDeviceGetCommandQueueGroupProperties,
        (1, 0) pfnGetMemoryProperties = zeDeviceGetMemoryProperties,
        (1, 0) pfnGetMemoryAccessProperties = zeDeviceGetMemoryAccessProperties,
        (1, 0) pfnGetExternalMemoryProperties = zeDeviceGetExternalMemoryProperties,
        (1, 0) pfnGetP2PProperties = zeDeviceGetP2PProperties,
        (1, 0) pfnCanAccessPeer = zeDeviceCanAccessPeer,
        (1, 0) pfnGetStatus = zeDeviceGetStatus,
        (1, 1) pfnGetGlobalTimestamps = zeDeviceGetGlobalTimestamps,
        (1, 3) pfnPciGetPropertiesExt = zeDevicePciGetPropertiesExt,
        (1, 7) pfnGetRootDevice = zeDeviceGetRootDevice,
        (1, 14) pfnSynchronize = zeDeviceSynchronize,
    }
    fn zeGetContextProcAddrTable(ze_context_dditable_t) {
        (1, 0) pfnCreate = zeContextCreate,
        (1, 0) pfnDestroy = zeContextDestroy,
        (1, 0) pfnGetStatus = zeContextGetStatus,
        (1, 1) pfnCreateEx = zeContextCreateEx,
    }
    fn zeGetCommandQueueProcAddrTable(ze_command_queue_dditable_t) {
        (1, 0) pfnCreate = zeCommandQueueCreate,
        (1, 0) pfnDestroy = zeCommandQueueDestroy,
        (1, 0) pfnExecuteCommandLists = zeCommandQueueExecuteCommandLists,
        (1, 0) pfnSynchronize = zeCommandQueueSynchronize,
    }
    fn zeGetCommandListProcAddrTable(ze_command_list_dditable_t) {
        (1, 0) pfnCreate = zeCommandListCreate,
        (1, 0) pfnCreateImmediate = zeCommandListCreateImmediate,
        (1, 0) pfnDestroy = zeCommandListDestroy,
        (1, 0) pfnClose = zeCommandListClose,
        (1, 0) pfnReset = zeCommandListReset,
        (1, 0) pfnAppendWriteGlobalTimestamp = zeCommandListAppendWriteGlobalTimestamp,
        (1, 0) pfnAppendBarrier = zeCommandListAppendBarrier,
        (1, 0) pfnAppendMemoryCopy = zeCommandListAppendMemoryCopy,
        (1, 0) pfnAppendMemoryFill = zeCommandListAppendMemoryFill,
        (1, 0) pfnAppendSignalEvent = zeCommandListAppendSignalEvent,
        (1, 0) pfnAppendWaitOnEvents = zeCommandListAppendWaitOnEvents,
        (1, 0) pfnAppendEventReset = zeCommandListAppendEventReset,
        (1, 0) pfnAppendLaunchKernel = zeCommandListAppendLaunchKernel,
        (1, 6) pfnHostSynchronize = zeCommandListHostSynchronize,
        (1, 9) pfnGetDeviceHandle = zeCommandListGetDeviceHandle,
        (1, 9) pfnGetContextHandle = zeCommandListGetContextHandle,
        (1, 9) pfnGetOrdinal = zeCommandListGetOrdinal,
        (1, 9) pfnIsImmediate = zeCommandListIsImmediate,
    }
    fn zeGetMemProcAddrTable(ze_mem_dditable_t) {
        (1, 0) pfnAllocShared = zeMemAllocShared,
        (1, 0) pfnAllocDevice = zeMemAllocDevice,
        (1, 0) pfnAllocHost = zeMemAllocHost,
        (1, 0) pfnFree = zeMemFree,
        (1, 0) pfnGetAllocProperties = zeMemGetAllocProperties,
        (1, 0) pfnGetAddressRange = zeMemGetAddressRange,
    }
    fn zeGetFenceProcAddrTable(ze_fence_dditable_t) {
        (1, 0) pfnCreate = zeFenceCreate,
        (1, 0) pfnDestroy = zeFenceDestroy,
        (1, 0) pfnHostSynchronize = zeFenceHostSynchronize,
        (1, 0) pfnQueryStatus = zeFenceQueryStatus,
        (1, 0) pfnReset = zeFenceReset,
    }
    fn zeGetEventPoolProcAddrTable(ze_event_pool_dditable_t) {
        (1, 0) pfnCreate = zeEventPoolCreate,
        (1, 0) pfnDestroy = zeEventPoolDestroy,
    }
    fn zeGetEventProcAddrTable(ze_event_dditable_t) {
        (1, 0) pfnCreate = zeEventCreate,
        (1, 0) pfnDestroy = zeEventDestroy,
        (1, 0) pfnHostSignal = zeEventHostSignal,
        (1, 0) pfnHostSynchronize = zeEventHostSynchronize,
        (1, 0) pfnQueryStatus = zeEventQueryStatus,
        (1, 0) pfnHostReset = zeEventHostReset,
        (1, 0) pfnQueryKernelTimestamp = zeEventQueryKernelTimestamp,
    }
    fn zeGetModuleProcAddrTable(ze_module_dditable_t) {
        (1, 0) pfnCreate = zeModuleCreate,
        (1, 0) pfnDestroy = zeModuleDestroy,
        (1, 0) pfnGetKernelNames = zeModuleGetKernelNames,
    }
    fn zeGetModuleBuildLogProcAddrTable(ze_module_build_log_dditable_t) {
        (1, 0) pfnDestroy = zeModuleBuildLogDestroy,
        (1, 0) pfnGetString = zeModuleBuildLogGetString,
    }
    fn zeGetKernelProcAddrTable(ze_kernel_dditable_t) {
        (1, 0) pfnCreate = zeKernelCreate,
        (1, 0) pfnDestroy = zeKernelDestroy,
        (1, 0) pfnSetGroupSize = zeKernelSetGroupSize,
        (1, 0) pfnSuggestGroupSize = zeKernelSuggestGroupSize,
        (1, 0) pfnSetArgumentValue = zeKernelSetArgumentValue,
        (1, 0) pfnGetName = zeKernelGetName,
    }
    fn zeGetPhysicalMemProcAddrTable(ze_physical_mem_dditable_t) {
        (1, 0) pfnCreate = zePhysicalMemCreate,
        (1, 0) pfnDestroy = zePhysicalMemDestroy,
    }
    fn zeGetVirtualMemProcAddrTable(ze_virtual_mem_dditable_t) {
        (1, 0) pfnReserve = zeVirtualMemReserve,
        (1, 0) pfnFree = zeVirtualMemFree,
        (1, 0) pfnQueryPageSize = zeVirtualMemQueryPageSize,
        (1, 0) pfnMap = zeVirtualMemMap,
        (1, 0) pfnUnmap = zeVirtualMemUnmap,
        (1, 0) pfnSetAccessAttribute = zeVirtualMemSetAccessAttribute,
        (1, 0) pfnGetAccessAttribute = zeVirtualMemGetAccessAttribute,
    }
    fn zesGetGlobalProcAddrTable(zes_global_dditable_t) {
        (1, 5) pfnInit = zesInit,
    }
    fn zesGetDriverProcAddrTable(zes_driver_dditable_t) {
        (1, 5) pfnGet = zesDriverGet,
    }
    fn zesGetDeviceProcAddrTable(zes_device_dditable_t) {
        (1, 0) pfnGetProperties = zesDeviceGetProperties,
        (1, 0) pfnEnumMemoryModules = zesDeviceEnumMemoryModules,
        (1, 5) pfnGet = zesDeviceGet,
    }
    fn zesGetMemoryProcAddrTable(zes_memory_dditable_t) {
        (1, 0) pfnGetProperties = zesMemoryGetProperties,
        (1, 0) pfnGetState = zesMemoryGetState,
    }
}

empty_tables! {
    zeGetCommandListExpProcAddrTable,
    zeGetDeviceExpProcAddrTable,
    zeGetDriverExpProcAddrTable,
    zeGetEventExpProcAddrTable,
    zeGetExecutableGraphProcAddrTable,
    zeGetFabricEdgeExpProcAddrTable,
    zeGetFabricVertexExpProcAddrTable,
    zeGetGraphProcAddrTable,
    zeGetImageExpProcAddrTable,
    zeGetImageProcAddrTable,
    zeGetKernelExpProcAddrTable,
    zeGetMemExpProcAddrTable,
    zeGetRTASBuilderExpProcAddrTable,
    zeGetRTASBuilderProcAddrTable,
    zeGetRTASParallelOperationExpProcAddrTable,
    zeGetRTASParallelOperationProcAddrTable,
    zeGetSamplerProcAddrTable,
    zesGetDeviceExpProcAddrTable,
    zesGetDiagnosticsProcAddrTable,
    zesGetDriverExpProcAddrTable,
    zesGetEngineProcAddrTable,
    zesGetFabricPortProcAddrTable,
    zesGetFanProcAddrTable,
    zesGetFirmwareExpProcAddrTable,
    zesGetFirmwareProcAddrTable,
    zesGetFrequencyProcAddrTable,
    zesGetLedProcAddrTable,
    zesGetOverclockProcAddrTable,
    zesGetPerformanceFactorProcAddrTable,
    zesGetPowerProcAddrTable,
    zesGetPsuProcAddrTable,
    zesGetRasExpProcAddrTable,
    zesGetRasProcAddrTable,
    zesGetSchedulerProcAddrTable,
    zesGetStandbyProcAddrTable,
    zesGetTemperatureProcAddrTable,
    zesGetVFManagementExpProcAddrTable,
    zetGetCommandListExpProcAddrTable,
    zetGetCommandListProcAddrTable,
    zetGetContextProcAddrTable,
    zetGetDebugProcAddrTable,
    zetGetDeviceExpProcAddrTable,
    zetGetDeviceProcAddrTable,
    zetGetKernelProcAddrTable,
    zetGetMetricDecoderExpProcAddrTable,
    zetGetMetricExpProcAddrTable,
    zetGetMetricGroupExpProcAddrTable,
    zetGetMetricGroupProcAddrTable,
    zetGetMetricProcAddrTable,
    zetGetMetricProgrammableExpProcAddrTable,
    zetGetMetricQueryPoolProcAddrTable,
    zetGetMetricQueryProcAddrTable,
    zetGetMetricStreamerProcAddrTable,
    zetGetMetricTracerExpProcAddrTable,
    zetGetModuleProcAddrTable,
    zetGetTracerExpProcAddrTable,
}
