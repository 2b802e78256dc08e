//! The smallest face, and a fresh driver of it for each test.
#![allow(dead_code, reason = "each test file uses only a part")]
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sim_engine::{
    Device, Engine, Environment, Error, Face, Fault, Handle, Lent, Lock, Operation, Position, Settings, Source, Target,
    Times, Work,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Unknown,
    Forked,
    Refused(Error),
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl sim_engine::Code for Code {
    const UNKNOWN: Self = Self::Unknown;
    const FORKED: Self = Self::Forked;

    fn parse(_: &str) -> Option<Self> {
        None
    }

    fn describe(outcome: Result<(), Self>) -> String {
        format!("{outcome:?}")
    }
}

/// Records only the names of marks, and what failed.
pub(crate) struct Tiny {
    pub(crate) engine: Engine<Self>,
    pub(crate) reached: Vec<(&'static str, Times)>,
    pub(crate) failed: Vec<Position>,
}

static LOCK: Lock<Tiny> = Lock::new(|| Tiny::new(0));

impl Tiny {
    fn new(seed: u64) -> Self {
        let mut settings = Settings::read(&mut Environment::of::<Self>("tiny", "start"));
        settings.seed = seed;
        let mut engine = Engine::new(&mut settings, 0);
        engine.devices = vec![Device::new(64 << 20); 2];
        Self { engine, reached: Vec::new(), failed: Vec::new() }
    }
}

impl Face for Tiny {
    type Code = Code;
    type Lane = ();
    type Mark = &'static str;

    const PREFIX: &'static str = "TINY_SIM_";

    fn lock() -> &'static Lock<Self> {
        &LOCK
    }

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Self> {
        &mut self.engine
    }

    fn may_reach(&self, _: usize, _: usize) -> bool {
        false
    }

    fn reached(&mut self, _: Position, mark: &'static str, times: Times) {
        self.reached.push((mark, times));
    }

    fn failed(&mut self, at: Position, _: &Fault) {
        self.failed.push(at);
    }
}

pub(crate) type Session = sim_engine::Session<Tiny>;

/// Exclusive access to a fresh driver. The tests of a program share one static.
pub(crate) struct Exclusive {
    session: Session,
    _lock: MutexGuard<'static, ()>,
}

impl Exclusive {
    pub(crate) fn new(seed: u64) -> Self {
        static TESTS: Mutex<()> = Mutex::new(());
        let lock = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut session = Session::new();
        *session = Tiny::new(seed);
        Self { session, _lock: lock }
    }

    pub(crate) fn lane(&mut self) -> Handle {
        self.lane_on(0)
    }

    pub(crate) fn lane_on(&mut self, device: usize) -> Handle {
        let handle = self.engine.new_handle();
        self.engine.open_lane(handle, device, ());
        handle
    }

    pub(crate) fn allocate(&mut self, device: usize, bytes: u64) -> u64 {
        self.engine.allocate(device, bytes, 0, 0).unwrap()
    }

    pub(crate) fn submit(&mut self, lane: Handle, operation: Operation<Tiny>) -> Position {
        self.engine.submit(lane, operation).unwrap()
    }

    /// Reads the bytes at an address with a copy in a lane of the first device.
    pub(crate) fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        let mut place = vec![0; bytes];
        let target = Target::Pageable(Lent(place.as_mut_ptr()));
        let copy = Work::Copy { target, source: Source::Memory(address), bytes: bytes as u64 };
        let lane = self.lane();
        let copied = self.submit(lane, Operation::new(copy));
        self.wait(&[copied]);
        self.engine.close_lane(lane);
        place
    }

    /// Returns the names of the marks that were reached.
    pub(crate) fn order(&self) -> Vec<&'static str> {
        self.reached.iter().map(|(mark, _)| *mark).collect()
    }
}

impl Deref for Exclusive {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Exclusive {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// Creates an operation that only records its turn.
pub(crate) fn mark(name: &'static str) -> Operation<Tiny> {
    Operation::new(Work::Nothing).mark(name)
}
