//! Memory and events of other processes.

use std::ffi::{c_int, c_void};
use std::os::fd::{IntoRawFd, RawFd};

use sim_engine::out::Out;

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::interprocess::IpcHandle;
use crate::state::{Handle, Session};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which every call must have.
const LAZY_PEER_ACCESS: u32 = 1;

exports! {
    /// Returns the name of an allocation for other processes.
    fn cuIpcGetMemHandle(handle: Out<'_, IpcHandle>, address: u64) [Context] => safe name_memory;
    /// Opens an allocation of another process.
    fn cuIpcOpenMemHandle_v2(address: Out<'_, u64>, handle: IpcHandle, flags: u32) [NoCapture] => safe open_memory;
    /// Closes it, when it has been closed as often as it was opened. Work that still uses it fails.
    fn cuIpcCloseMemHandle(address: u64) [NoCapture] => safe close_memory;
    /// Returns the name of an event for other processes. Waits for the work that it marks.
    fn cuIpcGetEventHandle(handle: Out<'_, IpcHandle>, event: Handle) [NoCapture] => safe name_event;
    /// Opens an event of another process.
    fn cuIpcOpenEventHandle(event: Out<'_, Handle>, handle: IpcHandle) [Context] => safe open_event;
}

exports! { newer:
    /// Exports physical memory as a new file descriptor.
    fn cuMemExportToShareableHandle(descriptor: Out<'_, c_int>, handle: u64, kind: u32, flags: u64)
        [Healthy] => safe export;
    /// Opens physical memory that another process has exported as a file descriptor, which may be closed afterwards.
    fn cuMemImportFromShareableHandle(handle: Out<'_, u64>, descriptor: *mut c_void, kind: u32)
        [Healthy] => safe import;
}

fn name_memory(driver: &mut Session, handle: Out<'_, IpcHandle>, address: u64) -> Outcome {
    required(handle)?.write(driver.name_memory(address)?);
    Ok(())
}

fn open_memory(driver: &mut Session, address: Out<'_, u64>, handle: IpcHandle, flags: u32) -> Outcome {
    let address = required(address)?;
    if flags != LAZY_PEER_ACCESS {
        return Err(Code::INVALID_VALUE);
    }
    let context = driver.current()?;
    address.write(driver.open_memory(context, handle)?);
    Ok(())
}

fn close_memory(driver: &mut Session, address: u64) -> Outcome {
    driver.close_memory(address)
}

fn name_event(driver: &mut Session, handle: Out<'_, IpcHandle>, event: Handle) -> Outcome {
    let handle = required(handle)?;
    let named = driver.name_event(event)?;
    if let Some(mark) = driver.mark(event)? {
        driver.wait(&[mark]);
    }
    handle.write(named);
    Ok(())
}

fn open_event(driver: &mut Session, event: Out<'_, Handle>, handle: IpcHandle) -> Outcome {
    let event = required(event)?;
    let context = driver.current()?;
    event.write(driver.open_event(context, handle)?);
    Ok(())
}

fn export(driver: &mut Session, descriptor: Out<'_, c_int>, handle: u64, kind: u32, flags: u64) -> Outcome {
    let descriptor = required(descriptor)?;
    if kind != crate::virtual_memory::FILE || flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    descriptor.write(driver.export_physical(handle)?.into_raw_fd());
    Ok(())
}

fn import(driver: &mut Session, handle: Out<'_, u64>, descriptor: *mut c_void, kind: u32) -> Outcome {
    let handle = required(handle)?;
    if kind != crate::virtual_memory::FILE {
        return Err(Code::INVALID_VALUE);
    }
    handle.write(driver.import_physical(descriptor.addr() as RawFd)?);
    Ok(())
}
