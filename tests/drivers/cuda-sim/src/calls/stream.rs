//! Streams.

use std::ffi::c_void;

use sim_engine::out::Out;
use sim_engine::{HostFunction, Operation, Position, Work};

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::state::{Handle, Session};
use crate::stream::Kind;

pub(super) const LEAST_PRIORITY: i32 = 0;
pub(super) const GREATEST_PRIORITY: i32 = -5;

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

exports! {
    /// Creates a stream.
    fn cuStreamCreate(stream: Out<'_, Handle>, flags: u32) [Context] => safe create;
    /// Creates a stream with a priority, which is clamped to the permitted range and has no other effect.
    fn cuStreamCreateWithPriority(stream: Out<'_, Handle>, flags: u32, priority: i32)
        [Context] => safe create_with_priority;
    /// Destroys a stream. Its work still happens.
    fn cuStreamDestroy_v2(stream: Handle) [Healthy] => safe destroy;
    /// Waits for a stream's work.
    fn cuStreamSynchronize(stream: Handle) [NoCapture] => safe synchronize;
    /// Whether a stream's work is over.
    fn cuStreamQuery(stream: Handle) [NoCapture] => safe query;
    /// Makes a stream wait for the work that an event marks at the time of the call.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) [Context] => safe wait_event;
    /// Returns the priority that a stream got.
    fn cuStreamGetPriority(stream: Handle, priority: Out<'_, i32>) [Context] => safe get_priority;
    /// Returns the flags that a stream was created with.
    fn cuStreamGetFlags(stream: Handle, flags: Out<'_, u32>) [Context] => safe get_flags;
    /// Returns a stream's context.
    fn cuStreamGetCtx(stream: Handle, context: Out<'_, Handle>) [Context] => safe get_context;
    /// Calls a host function in stream order, on one of the driver's threads.
    fn cuLaunchHostFunc(
        stream: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void,
    )
        [Context] => safe launch_host_function;
}

exports! { newer:
    /// Returns a stream's context, and that there are no green ones.
    fn cuStreamGetCtx_v2(stream: Handle, context: Out<'_, Handle>, green: Out<'_, Handle>)
        [Context] => safe get_contexts;
}

fn create(driver: &mut Session, stream: Out<'_, Handle>, flags: u32) -> Outcome {
    create_with_priority(driver, stream, flags, LEAST_PRIORITY)
}

fn create_with_priority(driver: &mut Session, stream: Out<'_, Handle>, flags: u32, priority: i32) -> Outcome {
    let stream = required(stream)?;
    let kind = match flags {
        0 => Kind::Blocking,
        NON_BLOCKING => Kind::NonBlocking,
        _ => return Err(Code::INVALID_VALUE),
    };
    let context = driver.current()?;
    let device = driver.contexts[&context].device;
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    stream.write(driver.open_stream(context, device, kind, priority));
    Ok(())
}

fn destroy(driver: &mut Session, handle: Handle) -> Outcome {
    let found = driver.stream(handle)?;
    if found != handle {
        return Err(Code::INVALID_HANDLE); // a default stream
    }
    driver.abandon_capture(found);
    driver.engine.close_lane(found);
    Ok(())
}

/// Returns the position of the last work in a stream so far.
fn end(driver: &mut Session, handle: Handle) -> Outcome<Position> {
    let stream = driver.stream(handle)?;
    if driver.state_of(stream)?.captured.is_some() {
        driver.invalidate_capture_of(stream);
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(driver.engine.end(stream))
}

fn synchronize(driver: &mut Session, handle: Handle) -> Outcome {
    let end = end(driver, handle)?;
    let context = driver.state_of(end.lane)?.context;
    driver.wait(&[end]);
    driver.context(context).map(drop)
}

fn query(driver: &mut Session, handle: Handle) -> Outcome {
    let end = end(driver, handle)?;
    let context = driver.state_of(end.lane)?.context;
    driver.advance();
    driver.context(context)?;
    if driver.engine.is_over(end) { Ok(()) } else { Err(Code::NOT_READY) }
}

fn wait_event(driver: &mut Session, handle: Handle, event: Handle, flags: u32) -> Outcome {
    let stream = driver.stream(handle)?;
    driver.event(event)?;
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    if !driver.wait_in_capture(stream, event)?
        && let Some(mark) = driver.mark(event)?
    {
        driver.submit_operation(stream, Operation::new(Work::Nothing).after([mark]))?;
    }
    Ok(())
}

fn get_priority(driver: &mut Session, handle: Handle, priority: Out<'_, i32>) -> Outcome {
    let stream = driver.stream(handle)?;
    required(priority)?.write(driver.state_of(stream)?.priority);
    Ok(())
}

fn get_flags(driver: &mut Session, handle: Handle, flags: Out<'_, u32>) -> Outcome {
    let stream = driver.stream(handle)?;
    let is_free = driver.state_of(stream)?.kind == Kind::NonBlocking;
    required(flags)?.write(if is_free { NON_BLOCKING } else { 0 });
    Ok(())
}

fn get_context(driver: &mut Session, handle: Handle, context: Out<'_, Handle>) -> Outcome {
    let stream = driver.stream(handle)?;
    required(context)?.write(driver.state_of(stream)?.context);
    Ok(())
}

fn get_contexts(driver: &mut Session, handle: Handle, context: Out<'_, Handle>, green: Out<'_, Handle>) -> Outcome {
    let green = required(green)?;
    get_context(driver, handle, context)?;
    green.write(0);
    Ok(())
}

fn launch_host_function(
    driver: &mut Session,
    handle: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> Outcome {
    let function = required(function)?;
    let stream = driver.stream(handle)?;
    driver.submit(stream, Work::HostFunction(HostFunction { function, data })).map(drop)
}
