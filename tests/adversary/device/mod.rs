//! A device that does its worst within the contract of a backend.
//!
//! It is the engine of the simulated drivers, used as a backend. Its memory has real bytes, and its streams run late,
//! in any order that the contract permits, which a seed chooses. Memory that is given back is gone: work that still
//! touches it fails. A [shadow](shadow::Shadow) checks each block that the allocator hands out.
#![allow(unsafe_code, reason = "the backend traits are unsafe to implement")]

mod backend;
mod clock;
mod failures;
mod graphs;
mod pages;
pub(crate) mod shadow;
mod state;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerator_core::backend_kit::{Captures, EventCapture};
use accelerator_core::{DeviceProperties, DevicePtr, DriverError, DriverErrorKind, DriverResult, MIB};
use sim_engine::{Device, Error, Face, Handle, Operation, Position, Waited, Work};

use self::clock::Clock;
use self::failures::Failures;
pub(crate) use self::failures::Plan;
use self::graphs::Captured;
use self::shadow::{Shadow, Touch};
use self::state::Session;

/// One device. All devices of the process share the engine, so one program runs at a time: see [`Adversary::alone`].
#[derive(Debug)]
pub(crate) struct Adversary {
    number: usize,
    properties: DeviceProperties,
    captures: Captures<Captured>,
    /// Shared with the graphs.
    failures: Arc<Failures>,
    maps: bool,
}

/// An address of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(u64);

impl DevicePtr for Address {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

/// A stream: a lane of the engine, and its number in the shadow.
#[derive(Debug)]
pub(crate) struct Lane {
    handle: Handle,
    pub(crate) number: usize,
}

/// An event, with its last record.
#[derive(Debug)]
pub(crate) struct Recorded(Mutex<Record>);

#[derive(Clone, Debug)]
enum Record {
    Never,
    At(Position, Clock),
    /// Boxed, because the other variants are smaller.
    InCapture(Box<(EventCapture, Clock)>),
}

impl Adversary {
    /// Makes a device with this much memory, with virtual memory or without. The seed chooses the order of the work.
    pub(crate) fn new(memory: u64, maps: bool, seed: u64) -> Self {
        let mut properties = DeviceProperties::new("Adversary", memory);
        properties.driver = "simulated".to_owned();
        properties.alignment = 2 * MIB;
        let mut session = Session::new();
        let engine = session.engine_mut();
        engine.random.seed(seed);
        engine.devices.push(Device::new(memory));
        let number = engine.devices.len() - 1;
        session.shadows.push(Shadow::default());
        Self { number, properties, captures: Captures::new(), failures: Arc::new(Failures::of(number)), maps }
    }

    /// Keeps other programs from running until the guard is dropped, so that the seed decides everything.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes calls fail from now on. Returns the number of calls that could fail before this.
    pub(crate) fn fail(&self, plan: Plan) -> u64 {
        self.failures.plan(plan)
    }

    /// Notes that the allocator has given memory to a stream.
    pub(crate) fn handed_out(&self, at: Address, len: u64, stream: &Lane) {
        let captured = self.captures.is_capturing(stream.number as u64);
        let mut session = Session::new();
        let spans = session.spans(at.0, len);
        let covered: u64 = spans.iter().map(|span| span.range.end - span.range.start).sum();
        let shadow = &mut session.shadows[self.number];
        if covered < len {
            shadow.found.push(format!("{len} bytes at {:#x} were given out, of which {covered} have memory", at.0));
        }
        shadow.hand_out(stream.number, captured, &spans);
    }

    /// Notes that pinned memory has been given to the host.
    pub(crate) fn handed_out_to_host(&self, at: NonNull<u8>, len: u64) {
        let mut session = Session::new();
        let spans = session.spans(at.addr().get() as u64, len);
        session.shadows[self.number].hand_out_to_host(&spans);
    }

    /// Whether work that starts now on a stream comes after all conflicting work on these bytes.
    pub(crate) fn is_ordered(&self, at: Address, len: u64, writes: bool, stream: &Lane) -> bool {
        let session = Session::new();
        session.shadows[self.number].is_ordered(stream.number, &session.spans(at.0, len), writes)
    }

    /// Runs a kernel that uses a whole range: it fills some parts of it, or only reads.
    ///
    /// # Safety
    /// The range is valid until the stream has done the work.
    pub(crate) unsafe fn kernel(
        &self,
        (at, len): (Address, u64),
        parts: &[(u64, u64)],
        value: Option<u8>,
        stream: &Lane,
    ) -> DriverResult<()> {
        self.enter("kernel")?;
        let fill = |(offset, len): &(u64, u64)| value.map(|value| Work::fill(at.0 + offset, value, *len));
        let work = parts.iter().filter_map(fill).chain([Work::Nothing]).collect();
        self.work("a kernel", stream, work, &[(at.0, len, value.is_some())])
    }

    /// Returns what was found wrong so far, and forgets it.
    pub(crate) fn violations(&self) -> Vec<String> {
        std::mem::take(&mut Session::new().shadows[self.number].found)
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn used(&self) -> u64 {
        let session = Session::new();
        session.engine().devices[self.number].used
    }

    /// Forgets all that the engine keeps of the device, which must not be used any more.
    pub(crate) fn retire(&self) {
        let mut session = Session::new();
        session.shadows[self.number] = Shadow::default();
        let (number, engine) = (self.number, session.engine_mut());
        engine.drop_work(|_, lane| lane.device == number);
        let lanes: Vec<_> = engine.ends(|_, lane| lane.device == number);
        lanes.iter().for_each(|end| engine.close_lane(end.lane));
        engine.violations.clear();
    }

    /// Counts a call, which may be one that fails.
    fn enter(&self, call: &'static str) -> DriverResult<()> {
        self.failures.enter(call)
    }

    /// Submits work that touches these ranges of addresses, each written or only read, or captures it.
    fn work(
        &self,
        what: &'static str,
        stream: &Lane,
        work: Vec<Work>,
        ranges: &[(u64, u64, bool)],
    ) -> DriverResult<()> {
        let mut session = Session::new();
        let spans = |(at, len, writes): &(u64, u64, bool)| {
            let writes = *writes;
            session.spans(*at, *len).into_iter().map(move |span| (span, writes)).collect::<Vec<Touch>>()
        };
        let touches: Vec<Touch> = ranges.iter().flat_map(spans).collect();
        let captured = self.captures.is_capturing(stream.number as u64);
        session.shadows[self.number].submit(stream.number, captured, what, &touches);
        let engine = session.engine_mut();
        if !self.captures.record(stream.number as u64, || Captured { what, work: work.clone(), touches }) {
            for work in work {
                engine.submit(stream.handle, Operation::new(work));
            }
        }
        Ok(())
    }

    /// Waits until operations are over, of which the host is told.
    fn wait_for(&self, call: &'static str, position: Position, clock: &Clock) -> DriverResult<()> {
        let mut session = Session::new();
        match session.wait(&[position]) {
            Waited::Over => {
                session.shadows[self.number].tell(clock);
                Ok(())
            }
            Waited::TooLate | Waited::Never => {
                Err(DriverError::refused(DriverErrorKind::Other, call, "the work can never be done"))
            }
        }
    }

    /// Lets some work happen, and returns whether operations are over. If so, the host is told.
    fn ask(&self, position: Position, clock: &Clock) -> bool {
        let mut session = Session::new();
        session.advance();
        let over = session.engine().is_over(position);
        if over {
            session.shadows[self.number].tell(clock);
        }
        over
    }

    /// Returns the end of a stream so far, and what comes before it.
    fn end_of(&self, stream: &Lane) -> (Position, Clock) {
        let captured = self.captures.is_capturing(stream.number as u64);
        let session = Session::new();
        (session.engine().end(stream.handle), session.shadows[self.number].now(stream.number, captured))
    }
}

/// Translates an error of the engine.
fn refused(call: &'static str, error: Error) -> DriverError {
    let kind = match error {
        Error::OutOfDeviceMemory | Error::OutOfHostMemory => DriverErrorKind::OutOfMemory,
        _ => DriverErrorKind::InvalidArgument,
    };
    DriverError::refused(kind, call, "the simulated device refused it")
}
