//! Results of Vulkan calls, as results of the core.

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use ash::vk;

/// Converts the result of a call.
pub(crate) fn of<T>(call: &'static str, result: Result<T, vk::Result>) -> DriverResult<T> {
    result.map_err(|result| error(call, result))
}

/// Makes the error for a call that returned `result`, or for a call that was not made because it would return it.
pub(crate) fn error(call: &'static str, result: vk::Result) -> DriverError {
    let kind = match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_TOO_MANY_OBJECTS
        | vk::Result::ERROR_OUT_OF_POOL_MEMORY
        | vk::Result::ERROR_FRAGMENTED_POOL
        | vk::Result::ERROR_FRAGMENTATION => Kind::OutOfMemory,
        vk::Result::ERROR_DEVICE_LOST => Kind::DeviceLost,
        vk::Result::ERROR_FEATURE_NOT_PRESENT
        | vk::Result::ERROR_EXTENSION_NOT_PRESENT
        | vk::Result::ERROR_LAYER_NOT_PRESENT
        | vk::Result::ERROR_INCOMPATIBLE_DRIVER
        | vk::Result::ERROR_FORMAT_NOT_SUPPORTED => Kind::Unsupported,
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE
        | vk::Result::ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS
        | vk::Result::ERROR_INVALID_SHADER_NV => Kind::InvalidArgument,
        _ => Kind::Other,
    };
    DriverError::new(kind, call, result.as_raw().into(), name(result))
}

/// Makes the error for a request over the largest allocation of the device. A driver would call it out of memory.
pub(crate) fn too_large(call: &'static str) -> DriverError {
    let DriverError { code, name, .. } = error(call, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    DriverError::new(Kind::AllocationTooLarge, call, code, name)
}

/// Makes the error for a call that was not made, since Vulkan does not allow its arguments.
pub(crate) fn refused(call: &'static str, why: &'static str) -> DriverError {
    DriverError::refused(Kind::InvalidArgument, call, why)
}

fn name(result: vk::Result) -> &'static str {
    const NAMES: [(vk::Result, &str); 22] = [
        (vk::Result::ERROR_UNKNOWN, "VK_ERROR_UNKNOWN"),
        (vk::Result::ERROR_VALIDATION_FAILED_EXT, "VK_ERROR_VALIDATION_FAILED_EXT"),
        (vk::Result::NOT_READY, "VK_NOT_READY"),
        (vk::Result::TIMEOUT, "VK_TIMEOUT"),
        (vk::Result::INCOMPLETE, "VK_INCOMPLETE"),
        (vk::Result::ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"),
        (vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        (vk::Result::ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"),
        (vk::Result::ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST"),
        (vk::Result::ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"),
        (vk::Result::ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT"),
        (vk::Result::ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT"),
        (vk::Result::ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT"),
        (vk::Result::ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"),
        (vk::Result::ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"),
        (vk::Result::ERROR_FORMAT_NOT_SUPPORTED, "VK_ERROR_FORMAT_NOT_SUPPORTED"),
        (vk::Result::ERROR_FRAGMENTED_POOL, "VK_ERROR_FRAGMENTED_POOL"),
        (vk::Result::ERROR_OUT_OF_POOL_MEMORY, "VK_ERROR_OUT_OF_POOL_MEMORY"),
        (vk::Result::ERROR_INVALID_EXTERNAL_HANDLE, "VK_ERROR_INVALID_EXTERNAL_HANDLE"),
        (vk::Result::ERROR_FRAGMENTATION, "VK_ERROR_FRAGMENTATION"),
        (vk::Result::ERROR_INVALID_SHADER_NV, "VK_ERROR_INVALID_SHADER_NV"),
        (vk::Result::ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS, "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS"),
    ];
    let known = NAMES.iter().find(|(named, _)| *named == result);
    known.map_or("a result without a name here", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_kind_the_call_and_the_result() {
        for (result, kind, text) in [
            (vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, Kind::OutOfMemory, "VK_ERROR_OUT_OF_DEVICE_MEMORY (code -2)"),
            (vk::Result::ERROR_TOO_MANY_OBJECTS, Kind::OutOfMemory, "VK_ERROR_TOO_MANY_OBJECTS (code -10)"),
            (vk::Result::ERROR_DEVICE_LOST, Kind::DeviceLost, "VK_ERROR_DEVICE_LOST (code -4)"),
            (vk::Result::ERROR_FEATURE_NOT_PRESENT, Kind::Unsupported, "VK_ERROR_FEATURE_NOT_PRESENT (code -8)"),
            (vk::Result::from_raw(-12_345), Kind::Other, "a result without a name here (code -12345)"),
        ] {
            let error = error("vkSomething", result);
            assert_eq!((error.kind, error.to_string()), (kind, format!("vkSomething failed: {text}")));
        }
    }
}
