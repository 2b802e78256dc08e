//! The engine of the simulated drivers, with a shadow for each device.

use sim_engine::{Code, Engine, Error, Face, Fault, Lock, Position, Settings, Times};

use super::shadow::{Memory, Shadow, Span};

/// All devices of the process.
pub(crate) struct State {
    engine: Engine<Self>,
    /// By device. A device that is retired has an empty one.
    pub(crate) shadows: Vec<Shadow>,
}

pub(crate) type Session = sim_engine::Session<State>;

static LOCK: Lock<State> = Lock::new(State::new);

impl State {
    fn new() -> Self {
        let (failures, host_memory) = (Vec::new(), u64::MAX / 2);
        let mut settings = Settings { devices: 0, memory: 0, host_memory, seed: 0, takes_time: false, failures };
        Self { engine: Engine::new(&mut settings, 0), shadows: Vec::new() }
    }

    /// Returns the bytes behind addresses, up to the first that has none.
    pub(crate) fn spans(&self, address: u64, len: u64) -> Vec<Span> {
        let (mut spans, end, mut at) = (Vec::new(), address + len, address);
        while at < end {
            let Some((memory, offset, left)) = self.behind(at) else { break };
            let len = left.min(end - at);
            spans.push(Span { memory, range: offset..offset + len, address: at });
            at += len;
        }
        spans
    }

    /// Returns the memory at an address, the offset in it, and how many bytes follow.
    fn behind(&self, at: u64) -> Option<(Memory, u64, u64)> {
        let engine = &self.engine;
        if let Some((start, allocation)) = engine.memory.containing(at) {
            return Some((Memory::Allocation(start), at - start, start + allocation.bytes - at));
        }
        if let Some((start, mapping, _)) = engine.virtual_memory.containing(at) {
            let offset = mapping.offset + (at - start);
            return Some((Memory::Pages(mapping.physical), offset, start + mapping.bytes - at));
        }
        let (start, block) = engine.host.containing(at)?;
        Some((Memory::Host(start), at - start, start + block.bytes() - at))
    }
}

/// A refused call; the methods of the backend translate the engine's errors themselves.
#[derive(Clone, Copy)]
pub(crate) struct Refused;

impl From<Error> for Refused {
    fn from(_: Error) -> Self {
        Self
    }
}

impl Code for Refused {
    const UNKNOWN: Self = Self;
    const FORKED: Self = Self;

    fn parse(_: &str) -> Option<Self> {
        None
    }

    fn describe(_: Result<(), Self>) -> String {
        String::new()
    }
}

impl Face for State {
    type Code = Refused;
    type Lane = ();
    type Mark = ();

    const PREFIX: &'static str = "ADVERSARY_";

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

    fn reached(&mut self, _: Position, (): (), _: Times) {}

    fn failed(&mut self, at: Position, fault: &Fault) {
        let device = self.engine.lanes.get(&at.lane).map(|lane| lane.device);
        if let Some(shadow) = device.and_then(|device| self.shadows.get_mut(device)) {
            shadow.found.push(fault.text.clone());
        }
    }
}
