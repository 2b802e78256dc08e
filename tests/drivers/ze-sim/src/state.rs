//! The driver's single state.

use std::collections::BTreeMap;

use sim_engine::{Engine, Face, Fault, Lane, Lock, Position, Times};

use crate::context::Context;
use crate::device::{Device, ticks};
use crate::event::{Event, Pool};
use crate::fence::Fence;
use crate::list::List;
use crate::memory::SMALL_PAGE;
use crate::module::{KernelObject, Module};
use crate::queue::Queue;
use crate::result::Refusal;
use crate::settings::Settings;
use crate::submit::Mark;
use crate::virtual_memory::Physical;

pub(crate) type Session = sim_engine::Session<Driver>;

/// The number behind a handle. It is never reused and is not an address.
pub(crate) type Handle = sim_engine::Handle;

const FIRST_HANDLE: Handle = 0x007e_0000_0000_0000;

/// Whether `zeInit` was called, and its outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Before,
    Succeeded,
    Failed,
}

pub(crate) struct Driver {
    pub(crate) engine: Engine<Self>,
    pub(crate) settings: Settings,
    /// Settings used when devices are created. The engine does not keep them.
    pub(crate) machine: Machine,
    pub(crate) start: Start,
    /// Whether the functions of system management may be called.
    pub(crate) sysman: bool,
    /// The handle of the only driver.
    pub(crate) handle: Handle,
    /// The devices visible to the process.
    pub(crate) devices: Vec<Device>,
    /// Whether the program has asked for the number of devices.
    pub(crate) devices_counted: bool,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) queues: BTreeMap<Handle, Queue>,
    pub(crate) lists: BTreeMap<Handle, List>,
    pub(crate) fences: BTreeMap<Handle, Fence>,
    pub(crate) pools: BTreeMap<Handle, Pool>,
    pub(crate) events: BTreeMap<Handle, Event>,
    pub(crate) modules: BTreeMap<Handle, Module>,
    pub(crate) build_logs: BTreeMap<Handle, String>,
    pub(crate) kernels: BTreeMap<Handle, KernelObject>,
    pub(crate) physical: BTreeMap<Handle, Physical>,
    /// The context of each reserved range, by address.
    pub(crate) reservations: BTreeMap<u64, Handle>,
    /// The number of commands submitted so far.
    pub(crate) submitted: u64,
    /// The thread in which a test made a call fail with a lost device.
    pub(crate) injected_loss: Option<u64>,
}

/// Devices and memory of the simulated machine.
pub(crate) struct Machine {
    pub(crate) devices: usize,
    pub(crate) memory: u64,
}

impl Driver {
    fn new() -> Self {
        let (mut machine, settings) = Settings::read();
        let mut engine = Engine::new(&mut machine, first_handle());
        Self {
            handle: engine.new_handle(),
            engine,
            settings,
            machine: Machine { devices: machine.devices, memory: machine.memory },
            start: Start::Before,
            sysman: false,
            devices: Vec::new(),
            devices_counted: false,
            contexts: BTreeMap::new(),
            queues: BTreeMap::new(),
            lists: BTreeMap::new(),
            fences: BTreeMap::new(),
            pools: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            build_logs: BTreeMap::new(),
            kernels: BTreeMap::new(),
            physical: BTreeMap::new(),
            reservations: BTreeMap::new(),
            submitted: 0,
            injected_loss: None,
        }
    }

    /// Records something that no correct program does.
    pub(crate) fn violation(&mut self, text: impl Into<String>) {
        self.engine.violations.push(text.into());
    }
}

static LOCK: Lock<Driver> = Lock::new(Driver::new);

/// Returns a first handle that differs from those of another copy of this library in the process: loaders identify
/// drivers by their handles.
fn first_handle() -> Handle {
    let page = (&raw const LOCK).addr() >> 12;
    FIRST_HANDLE | (page & 0xffff) << 32
}

impl Face for Driver {
    type Code = Refusal;
    /// The list or queue that it belongs to.
    type Lane = Handle;
    type Mark = Mark;

    const PREFIX: &'static str = "ZE_SIM_";
    const PAGE: u64 = SMALL_PAGE;

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
        self.settings.peers
    }

    fn timestamp(&self, clock: u64) -> u64 {
        ticks(clock)
    }

    fn reached(&mut self, _: Position, mark: Mark, _: Times) {
        self.check_reset(&mark);
    }

    fn failed(&mut self, at: Position, _: &Fault) {
        // A page fault terminates the work of a real device, too.
        if let Some(device) = self.engine.lanes.get(&at.lane).map(|lane: &Lane<Self>| lane.device) {
            self.lose(device);
        }
    }

    fn injected(&mut self, code: Refusal) {
        self.injected_loss = (code == Refusal::DEVICE_LOST).then(sim_engine::thread::number);
    }
}
