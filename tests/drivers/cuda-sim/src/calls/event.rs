//! Events.

use sim_engine::out::Out;
use sim_engine::{Operation, Work};

use crate::code::{Code, Outcome};
use crate::event::Event;
use crate::gate::{exports, required};
use crate::state::{Handle, Session};

const ALL_FLAGS: u32 = 7;

exports! {
    /// Creates an event.
    fn cuEventCreate(event: Out<'_, Handle>, flags: u32) [Context] => safe create;
    /// Destroys an event. Work that already waits for it keeps waiting.
    fn cuEventDestroy_v2(event: Handle) [Healthy] => safe destroy;
    /// Records an event: it marks all work submitted to a stream so far.
    fn cuEventRecord(event: Handle, stream: Handle) [Context] => safe record;
    /// Whether the work that it marks is over.
    fn cuEventQuery(event: Handle) [NoCapture] => safe query;
    /// Waits for the work that it marks.
    fn cuEventSynchronize(event: Handle) [NoCapture] => safe synchronize;
    /// Returns the milliseconds of virtual time between two events.
    fn cuEventElapsedTime(milliseconds: Out<'_, f32>, start: Handle, end: Handle)
        [Context] => safe elapsed_time;
    /// Like `cuEventElapsedTime`.
    fn cuEventElapsedTime_v2(milliseconds: Out<'_, f32>, start: Handle, end: Handle)
        [Context] => safe elapsed_time;
}

fn create(driver: &mut Session, event: Out<'_, Handle>, flags: u32) -> Outcome {
    let event = required(event)?;
    let context = driver.current()?;
    let made = Event { context, flags, recorded: None, time: None, captured: None };
    if flags & !ALL_FLAGS != 0 || (flags & Event::INTERPROCESS != 0 && made.has_timing()) {
        return Err(Code::INVALID_VALUE);
    }
    let handle = driver.engine.new_handle();
    driver.events.insert(handle, made);
    event.write(handle);
    Ok(())
}

fn destroy(driver: &mut Session, handle: Handle) -> Outcome {
    driver.event(handle)?;
    driver.events.remove(&handle);
    Ok(())
}

fn record(driver: &mut Session, handle: Handle, stream: Handle) -> Outcome {
    let context = driver.event(handle)?.context;
    let stream = driver.stream(stream)?;
    if driver.state_of(stream)?.context != context {
        return Err(Code::INVALID_HANDLE);
    }
    let captured = driver.mark_in_capture(stream)?;
    let recorded = match captured {
        Some(_) => None,
        None => driver.submit_operation(stream, Operation::new(Work::Nothing).mark(handle))?,
    };
    let event = driver.event(handle)?;
    (event.recorded, event.time, event.captured) = (recorded, None, captured);
    Ok(())
}

fn query(driver: &mut Session, handle: Handle) -> Outcome {
    let mark = driver.mark(handle)?;
    driver.advance();
    driver.event(handle)?;
    if mark.is_none_or(|mark| driver.engine.is_over(mark)) { Ok(()) } else { Err(Code::NOT_READY) }
}

fn synchronize(driver: &mut Session, handle: Handle) -> Outcome {
    let context = driver.event(handle)?.context;
    if let Some(mark) = driver.mark(handle)? {
        driver.wait(&[mark]);
    }
    driver.context(context).map(drop)
}

fn elapsed_time(driver: &mut Session, milliseconds: Out<'_, f32>, start: Handle, end: Handle) -> Outcome {
    let milliseconds = required(milliseconds)?;
    let marks = [driver.mark(start)?, driver.mark(end)?];
    let timed = driver.event(start)?.has_timing() && driver.event(end)?.has_timing();
    if !timed || marks.contains(&None) {
        return Err(Code::INVALID_HANDLE);
    }
    driver.advance();
    let (Some(start), Some(end)) = (driver.event(start)?.time, driver.event(end)?.time) else {
        return Err(Code::NOT_READY);
    };
    milliseconds.write((end as f64 / 1e6 - start as f64 / 1e6) as f32);
    Ok(())
}
