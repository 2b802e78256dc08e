//! Return codes of OpenCL calls, as results.

use accelerator_core::{DriverError, DriverErrorKind as Kind, DriverResult};
use cl3::error_codes as codes;
use cl3::types::cl_int;

/// Converts the result of a call.
pub(crate) fn of<T>(call: &'static str, result: Result<T, cl_int>) -> DriverResult<T> {
    result.map_err(|code| error(call, code))
}

/// Converts the result of a call that allocates memory: if resources are lacking, the missing resource is memory.
pub(crate) fn of_allocation<T>(call: &'static str, result: Result<T, cl_int>) -> DriverResult<T> {
    result.map_err(|code| match code {
        codes::CL_OUT_OF_RESOURCES | codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => {
            DriverError::new(Kind::OutOfMemory, call, code.into(), codes::error_text(code))
        }
        _ => error(call, code),
    })
}

/// Makes the error for a call that returned `code`, or for a call that was not made because it would return it.
pub(crate) fn error(call: &'static str, code: cl_int) -> DriverError {
    let kind = match code {
        codes::CL_MEM_OBJECT_ALLOCATION_FAILURE | codes::CL_OUT_OF_HOST_MEMORY => Kind::OutOfMemory,
        codes::CL_INVALID_BUFFER_SIZE => Kind::AllocationTooLarge,
        codes::CL_DEVICE_NOT_AVAILABLE => Kind::DeviceLost,
        codes::DLOPEN_RUNTIME_LOAD_FAILED | codes::DLOPEN_FUNCTION_NOT_AVAILABLE => Kind::Unsupported,
        codes::CL_DEVICE_NOT_FOUND
        | codes::CL_MEM_COPY_OVERLAP
        | codes::CL_MISALIGNED_SUB_BUFFER_OFFSET
        | codes::CL_MAX_SIZE_RESTRICTION_EXCEEDED..=codes::CL_INVALID_VALUE => Kind::InvalidArgument,
        _ => Kind::Other,
    };
    DriverError::new(kind, call, code.into(), codes::error_text(code))
}

/// Makes the error for a command that ended with this status. Some drivers use -1 for all failures.
pub(crate) fn failed_command(call: &'static str, status: cl_int) -> DriverError {
    let name = if status == -1 { "the command failed" } else { codes::error_text(status) };
    DriverError::new(Kind::Other, call, status.into(), name)
}
