//! Primary contexts, and the current context of each thread.

use sim_engine::out::{Out, put};

use crate::code::{Code, Outcome};
use crate::context;
use crate::gate::{exports, required};
use crate::state::{Handle, Session};
use crate::thread;

exports! {
    /// Retains the primary context of a device. The first call creates it.
    fn cuDevicePrimaryCtxRetain(context: Out<'_, Handle>, device: i32) [Init] => safe retain;
    /// Releases it. The last release destroys it and everything that belongs to it.
    fn cuDevicePrimaryCtxRelease_v2(device: i32) [Init] => safe release;
    /// Returns its flags, always 0, and whether it exists.
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<'_, u32>, active: Out<'_, i32>)
        [Init] => safe state;
    /// Makes a context current on the thread, or none if it is null.
    fn cuCtxSetCurrent(context: Handle) [Init] => safe set_current;
    /// Returns the thread's context, or null.
    fn cuCtxGetCurrent(context: Out<'_, Handle>) [Init] => safe get_current;
    /// Makes a context current until it is popped.
    fn cuCtxPushCurrent_v2(context: Handle) [Init] => safe push_current;
    /// Restores the context that was current before.
    fn cuCtxPopCurrent_v2(context: Out<'_, Handle>) [Init] => safe pop_current;
    /// Returns the device of the current context.
    fn cuCtxGetDevice(device: Out<'_, i32>) [Init] => safe get_device;
    /// Returns the API version of a context.
    fn cuCtxGetApiVersion(context: Handle, version: Out<'_, u32>) [Init] => safe api_version;
    /// Sets how the current context waits. Not simulated.
    fn cuCtxSetFlags(flags: u32) [Context] => safe set_flags;
    /// Returns the least and the greatest priority of streams: 0 and -5.
    fn cuCtxGetStreamPriorityRange(least: Out<'_, i32>, greatest: Out<'_, i32>)
        [Context] => safe priority_range;
    /// Waits for all work of the current context.
    fn cuCtxSynchronize() [NoCapture] => safe synchronize;
    /// Lets kernels of the current context access the memory of another context's device.
    fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) [Context] => safe enable_peer_access;
    /// Disables that access.
    fn cuCtxDisablePeerAccess(peer: Handle) [Context] => safe disable_peer_access;
}

fn retain(driver: &mut Session, context: Out<'_, Handle>, device: i32) -> Outcome {
    let context = required(context)?;
    let device = driver.device(device)?;
    context.write(driver.retain_context(device)?);
    Ok(())
}

fn release(driver: &mut Session, device: i32) -> Outcome {
    let device = driver.device(device)?;
    context::release(driver, device)
}

fn state(driver: &mut Session, device: i32, flags: Out<'_, u32>, active: Out<'_, i32>) -> Outcome {
    let device = driver.device(device)?;
    put(flags, 0);
    put(active, i32::from(driver.primary_context(device).is_some()));
    Ok(())
}

fn set_current(driver: &mut Session, context: Handle) -> Outcome {
    if context != 0 && !driver.contexts.contains_key(&context) {
        return Err(Code::INVALID_CONTEXT);
    }
    thread::set_current(context);
    Ok(())
}

fn get_current(_: &mut Session, context: Out<'_, Handle>) -> Outcome {
    required(context)?.write(thread::current());
    Ok(())
}

fn push_current(driver: &mut Session, context: Handle) -> Outcome {
    if !driver.contexts.contains_key(&context) {
        return Err(Code::INVALID_CONTEXT);
    }
    thread::push(context);
    Ok(())
}

fn pop_current(_: &mut Session, context: Out<'_, Handle>) -> Outcome {
    put(context, thread::pop().ok_or(Code::INVALID_CONTEXT)?);
    Ok(())
}

fn get_device(driver: &mut Session, device: Out<'_, i32>) -> Outcome {
    let device = required(device)?;
    let current = driver.current()?;
    device.write(driver.contexts[&current].device as i32);
    Ok(())
}

fn api_version(driver: &mut Session, context: Handle, version: Out<'_, u32>) -> Outcome {
    let version = required(version)?;
    if context != 0 {
        driver.context(context)?;
    }
    version.write(3020);
    Ok(())
}

fn set_flags(_: &mut Session, _flags: u32) -> Outcome {
    Ok(())
}

fn priority_range(_: &mut Session, least: Out<'_, i32>, greatest: Out<'_, i32>) -> Outcome {
    put(least, crate::calls::stream::LEAST_PRIORITY);
    put(greatest, crate::calls::stream::GREATEST_PRIORITY);
    Ok(())
}

fn synchronize(driver: &mut Session) -> Outcome {
    let current = driver.current()?;
    driver.check_uncaptured_context(current)?;
    let ends = driver.ends_of(current);
    driver.wait(&ends);
    driver.context(current).map(drop)
}

fn enable_peer_access(driver: &mut Session, peer: Handle, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (current, device) = (driver.current()?, driver.context(peer)?.device);
    let most = driver.settings.peers;
    let context = driver.context(current)?;
    if current == peer {
        return Err(Code::INVALID_CONTEXT);
    }
    if context.peers.contains(&device) {
        return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
    }
    if context.peers.len() >= most {
        return Err(Code::TOO_MANY_PEERS);
    }
    context.peers.insert(device);
    Ok(())
}

fn disable_peer_access(driver: &mut Session, peer: Handle) -> Outcome {
    let (current, device) = (driver.current()?, driver.context(peer)?.device);
    let peers = &mut driver.context(current)?.peers;
    if peers.remove(&device) { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
}
